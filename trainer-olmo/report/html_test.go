package report

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOnlyKeysThatDifferAreListed(t *testing.T) {
	a := &Run{Name: "a", Config: "run_name: a\nsave_folder: x\noptimizer:\n  name: adamw\n  lr: 0.1\n  nested:\n    deep: 1\ndata:\n  paths:\n    - one.npy\ntrain:\n  steps: 5\n"}
	b := &Run{Name: "b", Config: "run_name: b\nsave_folder: y\noptimizer:\n  name: soap\n  lr: 0.1\n  nested:\n    deep: 2\ndata:\n  paths:\n    - two.npy\ntrain:\n  steps: 5\n"}
	header, rows := configDiff([]*Run{a, b})
	if diff := cmp.Diff([]string{"key", "a", "b"}, header); diff != "" {
		t.Error(diff)
	}
	want := [][]string{{"optimizer.name", "adamw", "soap"}, {"optimizer.nested.deep", "1", "2"}}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if _, rows := configDiff([]*Run{a}); rows != nil {
		t.Errorf("one run differs from nothing: %v", rows)
	}
}

func TestHealthLinesUpBlocksWithOtherKeys(t *testing.T) {
	r := &Run{Health: []Block{
		{Keys: []string{"block", "age"}, Values: []string{"q", "1"}},
		{Keys: []string{"block", "failed"}, Values: []string{"k", "2"}},
	}}
	s := healthSection(r)
	if diff := cmp.Diff([]string{"block", "age", "failed"}, s.Header); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([][]string{{"q", "1", ""}, {"k", "", "2"}}, s.Rows); diff != "" {
		t.Error(diff)
	}
}

func TestCellsAreShort(t *testing.T) {
	for in, want := range map[string]string{
		"3": "3", "0.000012345678": "1.235e-05", `"eigen"`: "eigen", "null": "–", "[1,2]": "[1,2]", "true": "true", "1e12": "1e+12",
	} {
		if got := cell([]byte(in)); got != want {
			t.Errorf("cell(%s) = %q, want %q", in, got, want)
		}
	}
}

func TestTheLowestHeldOutLossIsMarkedOnlyAmongSeveral(t *testing.T) {
	held := func(v float64) *Run {
		return &Run{steps: []int64{1}, metrics: map[string]map[int64]float64{"eval/lm/x/CE loss": {1: v}}}
	}
	none := &Run{steps: []int64{1}, metrics: map[string]map[int64]float64{}}
	if diff := cmp.Diff([]bool{false, true, false}, best([]*Run{held(2), held(1), none})); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]bool{false, false}, best([]*Run{held(2), none})); diff != "" {
		t.Error(diff)
	}
}

func TestTheMeanFollowsTheCurveToItsEnds(t *testing.T) {
	// A straight line is its own centred mean, with whatever window.
	s := Series{}
	for i := range int64(200) {
		s.Step = append(s.Step, i)
		s.Value = append(s.Value, 3-0.01*float64(i))
	}
	lines := smoothed("x", palette[0], xys(s, nil))
	for i, p := range lines[1].points {
		// Sums of at most 11 terms near 3, each rounded to 2^-52 of it.
		if d := p.Y - s.Value[i]; d > 1e-14 || d < -1e-14 {
			t.Fatalf("at %d: %g, want %g", i, p.Y, s.Value[i])
		}
	}
}
