package train

import (
	"math"

	"github.com/asteria-runtime/asteria/trainer-olmo/data"
	"github.com/asteria-runtime/asteria/trainer-olmo/model"
)

// EvalResult is the loss on held-out text.
type EvalResult struct {
	CE     float64 // mean cross-entropy in nats
	PPL    float64 // exp(CE)
	Labels int64   // targets that counted
	Tokens int64   // tokens read
}

// evaluation adds up losses. The core metric is the mean over labels; the legacy
// one is the mean over instances of their mean over positions, where a masked
// position counts as a loss of zero.
type evaluation struct {
	legacy    bool
	ce        float64
	labels    int64
	tokens    int64
	instances int64
}

func newEvaluation(legacy bool) *evaluation { return &evaluation{legacy: legacy} }

// adder is the part of a model that an evaluation needs.
type lossModel interface {
	Loss(model.Batch, model.LossOptions) (model.LossStats, error)
}

// add evaluates a batch.
func (e *evaluation) add(m lossModel, b *data.Batch) error { return e.addRows(m, b, 0, b.Rows) }

func (e *evaluation) addRows(m lossModel, b *data.Batch, lo, hi int) error {
	st, err := m.Loss(modelBatch(b, lo, hi), model.LossOptions{})
	if err != nil {
		return err
	}
	e.labels += int64(st.Labels)
	e.tokens += int64((hi - lo) * b.Seq)
	for _, ce := range st.RowCE {
		e.instances++
		if e.legacy {
			ce /= float64(b.Seq - 1)
		}
		e.ce += ce
	}
	return nil
}

// result is the loss over all batches so far, NaN without any label.
func (e *evaluation) result() EvalResult {
	n := float64(e.labels)
	if e.legacy {
		n = float64(e.instances)
	}
	ce := e.ce / n
	return EvalResult{CE: ce, PPL: math.Exp(ce), Labels: e.labels, Tokens: e.tokens}
}

var _ lossModel = (*model.Model[float32])(nil)
var _ lossModel = (*model.Model[float64])(nil)

// evalRows is how many instances are evaluated at once, about 4096 tokens: it
// bounds the activations, and does not change the result.
func evalRows(seq int) int { return max(1, 4096/seq) }
