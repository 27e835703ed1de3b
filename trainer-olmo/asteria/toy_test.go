package asteria

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/kron"
	"github.com/asteria-runtime/asteria/trainer-olmo/optim"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// toyLM is a language model small enough to write out: the next token of a
// Markov chain from logits E[x]*A*B, with fixed embeddings E.
type toyLM struct {
	embed  [][]float64 // vocab × width
	chain  [][]float64 // transition probabilities
	a, b   param.Param[float32]
	rng    *rand.Rand
	tokens int // per batch
}

const (
	toyVocab = 12
	toyWidth = 10
)

func newToyLM(seed uint64) *toyLM {
	m := &toyLM{rng: rand.New(rand.NewPCG(seed, 0)), tokens: 256}
	for range toyVocab {
		e, p, sum := make([]float64, toyWidth), make([]float64, toyVocab), 0.0
		for j := range e {
			e[j] = m.rng.NormFloat64() * math.Pow(0.6, float64(j)) // badly scaled, as real features are
		}
		for j := range p {
			p[j] = math.Exp(2 * m.rng.NormFloat64())
			sum += p[j]
		}
		for j := range p {
			p[j] /= sum
		}
		m.embed, m.chain = append(m.embed, e), append(m.chain, p)
	}
	m.a = tensor[float32]("a", param.Matrix, toyWidth, toyWidth)
	m.b = tensor[float32]("b", param.Matrix, toyWidth, toyVocab)
	for i := range m.a.Value {
		m.a.Value[i] *= 10
	}
	for i := range m.b.Value {
		m.b.Value[i] *= 10
	}
	return m
}

// logits returns E[x]*A, and log probabilities of the next token after x.
func (m *toyLM) logits(x int) (hidden, logp []float64) {
	hidden, logp = make([]float64, toyWidth), make([]float64, toyVocab)
	for i, e := range m.embed[x] {
		for j := range hidden {
			hidden[j] += e * float64(m.a.Value[i*toyWidth+j])
		}
	}
	total := 0.0
	for j := range logp {
		for i, h := range hidden {
			logp[j] += h * float64(m.b.Value[i*toyVocab+j])
		}
		total += math.Exp(logp[j])
	}
	for j := range logp {
		logp[j] -= math.Log(total)
	}
	return hidden, logp
}

// loss is the exact expected cross-entropy under uniform contexts.
func (m *toyLM) loss() float64 {
	sum := 0.0
	for x, p := range m.chain {
		_, logp := m.logits(x)
		for y := range p {
			sum -= p[y] * logp[y] / toyVocab
		}
	}
	return sum
}

// gradient fills the gradients of a random batch.
func (m *toyLM) gradient() {
	clear(m.a.Grad)
	clear(m.b.Grad)
	for range m.tokens {
		x := m.rng.IntN(toyVocab)
		u, y := m.rng.Float64(), 0
		for ; y < toyVocab-1 && u >= m.chain[x][y]; y++ {
			u -= m.chain[x][y]
		}
		hidden, logp := m.logits(x)
		back := make([]float64, toyWidth)
		for j, lp := range logp {
			d := math.Exp(lp) / float64(m.tokens)
			if j == y {
				d -= 1 / float64(m.tokens)
			}
			for i, h := range hidden {
				m.b.Grad[i*toyVocab+j] += float32(h * d)
				back[i] += float64(m.b.Value[i*toyVocab+j]) * d
			}
		}
		for i, e := range m.embed[x] {
			for j, d := range back {
				m.a.Grad[i*toyWidth+j] += float32(e * d)
			}
		}
	}
}

func (m *toyLM) train(t *testing.T, r *Runtime[float32], steps int, lr float64, scale float32) {
	t.Helper()
	for range steps {
		m.gradient()
		for _, p := range []param.Param[float32]{m.a, m.b} {
			for i := range p.Grad {
				p.Grad[i] *= scale
			}
		}
		optim.Clip([]param.Param[float32]{m.a, m.b}, 1) // as the trainer does by default
		if err := r.Step(1, lr); err != nil {
			t.Fatal(err)
		}
	}
}

// Field failure A8: one gradient ten thousand times too large, then normal ones:
// 50 steps later the loss is within 5% of what it was, and no factor is broken. The same with
// refreshes beside training, from the start on.
func TestA08_GradientSpike(t *testing.T) {
	for _, mode := range []Mode{Native, Asteria} {
		spike(t, mode)
	}
}

func spike(t *testing.T, mode Mode) {
	t.Helper()
	for _, m := range methods {
		lm := newToyLM(81)
		eng := gemm.New(1)
		defer eng.Close()
		o := Options{Method: m, Betas: [2]float64{0.9, 0.95}, Kron: kron.Options{Graft: kron.Graft{}}, Mode: mode, Async: Async{LagStart: -1}}
		r, err := New([]param.Param[float32]{lm.a, lm.b}, eng, o)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		start := lm.loss()
		lm.train(t, r, 150, 0.01, 1)
		before := lm.loss()
		if !(before < 0.8*start) {
			t.Fatalf("%v, %v: learned nothing: %g to %g", mode, m, start, before)
		}
		lm.train(t, r, 1, 0.01, 1e4)
		lm.train(t, r, 50, 0.01, 1)
		if after := lm.loss(); !(after <= 1.05*before) {
			t.Errorf("%v, %v: loss %g before the spike, %g after 50 steps", mode, m, before, after)
		}
		for _, h := range r.Health() {
			if h.Failed != 0 {
				t.Errorf("%v, %v: %s failed %d times", mode, m, h.Block, h.Failed)
			}
		}
	}
}
