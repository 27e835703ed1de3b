package data

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// rowsDefinition finds repetitions by rows, as the definition reads: tokens in
// rows of p; groups of consecutive rows equal to the row before; widened by the
// equal ends of the rows around the group.
func rowsDefinition(tokens []int32, p int) []Repetition {
	equal := func(i int) bool { return i >= p && i < len(tokens) && tokens[i] == tokens[i-p] }
	row := func(r int) bool {
		for i := r * p; i < (r+1)*p; i++ {
			if !equal(i) {
				return false
			}
		}
		return true
	}
	var out []Repetition
	for r := 1; (r+1)*p <= len(tokens); r++ {
		if !row(r) {
			continue
		}
		last := r
		for row(last + 1) {
			last++
		}
		start, end := (r-1)*p, (last+1)*p
		for i := r*p - 1; i >= p && equal(i); i-- {
			start--
		}
		for equal(end) {
			end++
		}
		if times := (end - start) / p; times > 2 {
			out = append(out, Repetition{start, end, p, times})
		}
		r = last
	}
	return out
}

func TestRepetitionsAgreeWithTheDefinition(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 5))
		tokens := make([]int32, r.IntN(80))
		for i := range tokens {
			if p := 1 + r.IntN(6); i >= p && r.IntN(8) > 0 {
				tokens[i] = tokens[i-p]
				continue
			}
			tokens[i] = r.Int32N(4)
		}
		f := Filter{MaxPeriod: 8, MinPeriod: 1 + int(seed%3), MaxCount: 1 << 20}
		var got, want []Repetition
		f.Repetitions(tokens, func(r Repetition) bool { got = append(got, r); return true })
		for p := f.MinPeriod; p <= min(8, len(tokens)/3); p++ {
			want = append(want, rowsDefinition(tokens, p)...)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d, %v (-want +got):\n%s", seed, tokens, diff)
		}
	}
}

func TestFilterDefaultsAreOLMos(t *testing.T) {
	if got, want := (Filter{}).withDefaults(), (Filter{13, 1, 32}); got != want {
		t.Errorf("%+v", got)
	}
	wantError(t, Filter{MinPeriod: 5, MaxPeriod: 3}.validate(), "data.instance_filter")
}
