package main

import (
	"bytes"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/asteria-runtime/asteria/gemm"
)

func TestRatioPassesOverWrongPeers(t *testing.T) {
	r := result{Peers: []measurement{
		{Name: "asteria", Ratio: 1}, {Name: "fast but wrong", Ratio: 0.5, Error: "wrong result"},
		{Name: "slow", Ratio: 2.5}, {Name: "best", Ratio: 1.5},
	}}
	if x, best := r.ratio(); x != 1.5 || best != "best" {
		t.Fatalf("%v to %q", x, best)
	}
}

// A clock that halves for some of the rounds, and a few lucky or disturbed blocks, must
// not change the ratio.
func TestRatioIsOfPairedRounds(t *testing.T) {
	ours, peer := make([]float64, 21), make([]float64, 21)
	for r := range ours {
		clock := 1 + float64(r%3)
		ours[r], peer[r] = 2*clock, 3*clock
	}
	ours[4], peer[11], peer[20] = 50, 1, 40
	c := &contest{entries: []*contender{{name: "asteria"}, {name: "peer"}}}
	r := c.summarise([][]float64{ours, peer})
	if x, _ := r.ratio(); x != 1.5 || r.spread() != 0 || r.Rounds != 21 {
		t.Fatalf("ratio %v, spread %v of %d rounds", x, r.spread(), r.Rounds)
	}
	if m := r.Peers[1]; m.Min != 1 || m.Median != 6 {
		t.Fatalf("minimum %v, median %v", m.Min, m.Median)
	}
}

// The standard error from quartiles against the definition, on many medians of normal
// numbers.
func TestMedianKnowsItsError(t *testing.T) {
	const n, tries = 31, 2000
	r := rand.New(rand.NewPCG(7, 7))
	var square, claimed float64
	for range tries {
		x := make([]float64, n)
		for i := range x {
			x[i] = r.NormFloat64()
		}
		mid, e := median(x)
		square += mid * mid / tries
		claimed += e / tries
	}
	if q := claimed / math.Sqrt(square); q < 0.85 || q > 1.15 {
		t.Fatalf("claims %.2f of the true error", q)
	}
}

// A row with a steady ratio ends after the least rounds, another one goes on until its
// time is up.
func TestDisturbedRowsGetMoreRounds(t *testing.T) {
	st := newStage()
	defer st.close()
	row := func(steady float64) result {
		run := func() { time.Sleep(50 * time.Microsecond) }
		c := &contest{entries: []*contender{{name: "asteria", run: run}, {name: "peer", run: run}}}
		return c.measure(st, settings{rounds: 3, most: 30 * time.Millisecond, steady: steady, block: time.Microsecond})
	}
	if r := row(math.Inf(1)); r.Rounds != 3 {
		t.Errorf("a steady row had %d rounds", r.Rounds)
	}
	if r := row(-1); r.Rounds <= 3 {
		t.Errorf("an unsteady row had %d rounds", r.Rounds)
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
