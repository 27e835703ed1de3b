package krontest

import (
	"math"
	"testing"
	"unsafe"

	"github.com/asteria-runtime/asteria/gemm"
)

// compareCall compares what the file records after call i+1 beside parameters.
func (p *player[T]) compareCall(t *testing.T, i int, tol float64) {
	t.Helper()
	if i < len(p.c.Factors) {
		p.compareFactors(t, "factor", p.c.Factors[i], tol)
	}
	if i < len(p.c.Gains) {
		for k, want := range p.c.Gains[i] {
			p.close(t, "gain", k, p.states[0].Gain[k], want, tol, false)
		}
	}
	for _, r := range p.c.Roots {
		// A root amplifies the rounding of a float32 factor by its condition,
		// for which the files state no bound.
		if r.Step != i+1 || p.delay != 0 || unsafe.Sizeof(p.param[0]) == 4 {
			continue
		}
		for block, roots := range r.Blocks {
			for k, want := range roots {
				p.close(t, "root", k, p.states[block].Root[k], want, tol, false)
			}
		}
	}
}

// compareFinal compares the final state of the first block, or of all where the
// file lists blocks.
func (p *player[T]) compareFinal(t *testing.T, tol float64) {
	t.Helper()
	var perMode [][]float64
	for _, key := range []string{"GG", "S", "L"} {
		if unmarshal(p.c, key, &perMode) {
			p.compareFactors(t, key, perMode, tol)
		}
	}
	if unmarshal(p.c, "eigen_sqrt_inv", &perMode) {
		for k, want := range perMode {
			p.close(t, "eigen_sqrt_inv", k, p.states[0].Gain[k], want, tol, false)
		}
	}
	if unmarshal(p.c, "Q", &perMode) {
		for k, want := range perMode {
			p.close(t, "Q", k, p.states[0].Root[k], want, tol, true)
		}
	}
	var perBlock [][][]float64
	if unmarshal(p.c, "factors_L_not_bias_corrected", &perBlock) {
		for block, factors := range perBlock {
			for k, want := range factors {
				n := p.blocks[block].FactorOrder(k)
				p.close(t, "final factor", k, mirrored(p.states[block].Factor[k], n), want, tol, false)
			}
		}
	}
	p.compareMoments(t, tol)
}

func (p *player[T]) compareMoments(t *testing.T, tol float64) {
	t.Helper()
	var want []float64
	st := p.states[0]
	for _, key := range []string{"exp_avg_sq", "exp_avg_sq_in_eigenbasis", "corrected_eigenvalues"} {
		if unmarshal(p.c, key, &want) {
			p.close(t, key, -1, st.Second, want, tol, false)
		}
	}
	if st.Momentum == nil {
		return // beta1 is zero: the references then store the gradient itself
	}
	original := make([]T, p.blocks[0].Len())
	if err := p.blocks[0].MomentumIn(original, st, p.worker.Ops, p.worker.Scratch); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"exp_avg_in_original_space", "exp_avg"} {
		if key == "exp_avg" && p.opts.Method.String() == "kl-soap" {
			continue // recorded in a basis whose signs are arbitrary
		}
		if unmarshal(p.c, key, &want) {
			p.close(t, key, -1, original, want, tol, false)
		}
	}
}

func (p *player[T]) compareFactors(t *testing.T, what string, want [][]float64, tol float64) {
	t.Helper()
	for k, w := range want {
		n := p.blocks[0].FactorOrder(k)
		p.close(t, what, k, mirrored(p.states[0].Factor[k], n), w, tol, false)
	}
}

// close compares within tol of the largest entry, or of one where that is
// smaller; sign lets the columns' signs differ.
func (p *player[T]) close(t *testing.T, what string, mode int, got []T, want []float64, tol float64, sign bool) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s of mode %d has %d elements, want %d", what, mode, len(got), len(want))
		return
	}
	largest := 1.0
	for _, v := range want {
		largest = max(largest, math.Abs(v))
	}
	for i, v := range got {
		g, w := float64(v), want[i]
		if sign {
			g, w = math.Abs(g), math.Abs(w)
		}
		if !(math.Abs(g-w) <= tol*largest) {
			t.Errorf("%s of mode %d differs by %g at %d, want at most %g", what, mode, math.Abs(g-w), i, tol*largest)
			return
		}
	}
}

// mirrored fills the upper triangle from the lower one, in a copy.
func mirrored[T gemm.Float](lower []T, n int) []T {
	out := append([]T(nil), lower...)
	for i := range n {
		for j := range i {
			out[j*n+i] = out[i*n+j]
		}
	}
	return out
}
