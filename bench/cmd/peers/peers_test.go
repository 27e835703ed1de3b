package main

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/asteria-runtime/asteria/gemm"
)

func TestRatioPassesOverWrongPeers(t *testing.T) {
	r := result{Peers: []measurement{
		{Name: "asteria", Min: 2}, {Name: "fast but wrong", Min: 1, Error: "wrong result"},
		{Name: "slow", Min: 5}, {Name: "best", Min: 3},
	}}
	if x, best := r.ratio(); x != 1.5 || best != "best" {
		t.Fatalf("%v to %q", x, best)
	}
}

// The graded matrix must have the spectrum it claims: similarity keeps trace and
// Frobenius norm.
func TestGradedMatrixKeepsItsSpectrum(t *testing.T) {
	const n = 24
	var trace, square, wantTrace, wantSquare float64
	for i, v := range symmetric[float64](n, true) {
		square += v * v
		if i%(n+1) == 0 {
			trace += v
		}
	}
	for i := range n {
		l := math.Pow(1e-6, float64(i)/(n-1))
		wantTrace, wantSquare = wantTrace+l, wantSquare+l*l
	}
	// Four similarity transforms of n roundings each.
	if bound := 8.0 * n * n * 0x1p-53; math.Abs(trace-wantTrace) > bound || math.Abs(square-wantSquare) > bound {
		t.Fatalf("trace %v, want %v; squares %v, want %v", trace, wantTrace, square, wantSquare)
	}
}

func TestDistanceSeesAWrongElementAndNaN(t *testing.T) {
	x := random[float32](100, 1)
	y := append([]float32(nil), x...)
	if d := distance(x, y, 64); d != 0 {
		t.Fatalf("equal slices differ by %v", d)
	}
	y[50] += 0.01
	if d := distance(x, y, 64); d <= 1 {
		t.Fatalf("a wrong element counts as %v", d)
	}
	y[50] = float32(math.NaN())
	if d := distance(x, y, 64); !(d > 1) {
		t.Fatalf("NaN counts as %v", d)
	}
}

// Every contest of the smallest size, against whatever peers are installed: all
// must agree, and the table must name them.
func TestSmallContests(t *testing.T) {
	st := newStage()
	defer st.close()
	rep := &report{Libraries: map[string]string{}, FMA: map[int]float64{1: 100}, Overhead: map[string]string{}}
	b := &bench{engine: gemm.New(1)}
	defer b.engine.Close()
	st.on(func() { b.libs = openAll(rep) })
	if len(b.libs) == 0 {
		t.Skipf("no peer: %v", rep.Missing)
	}
	for _, c := range []*contest{
		products[float32](b, shape{33, 17, 9, true, false, 3}, "SGEMM"),
		products[float64](b, shape{20, 31, 12, false, true, 1}, "DGEMM"),
		rankUpdate[float32](b, 40, false, "SSYRK"), rankUpdate[float32](b, 40, true, "SSYRK"),
		eigen[float32](b, 40, false, "EVD"), eigen[float64](b, 40, true, "EVD"),
		orthogonal[float32](b, 40, "QR"), refresh[float32](b, 40, "refresh"), inverseRoot[float32](b, 40, "root"),
	} {
		r := c.measure(st, settings{rounds: 1, block: time.Microsecond})
		for _, p := range r.Peers {
			if p.Error != "" || p.Min <= 0 {
				t.Errorf("%s %s: %s: %s, %v s", c.group, c.shape, p.Name, p.Error, p.Min)
			}
		}
		var out bytes.Buffer
		rep.printRow(&out, &r)
		if len(r.Peers) > 1 && !strings.Contains(out.String(), r.Peers[1].Name) {
			t.Errorf("the row %q does not name %s", out.String(), r.Peers[1].Name)
		}
		if c.close != nil {
			c.close()
		}
	}
}

func TestGroupsAreChosenByPart(t *testing.T) {
	for _, c := range []struct {
		group, wanted string
		in            bool
	}{{"SGEMM square", "", true}, {"SGEMM square", "sgemm", true}, {"QR float32", "sgemm,qr", true}, {"DGEMM", "sgemm", false}} {
		if selected(c.group, c.wanted) != c.in {
			t.Errorf("%q with -groups %q: %v", c.group, c.wanted, !c.in)
		}
	}
	if _, err := parseCounts("1,x"); err == nil {
		t.Error("thread count x accepted")
	}
}
