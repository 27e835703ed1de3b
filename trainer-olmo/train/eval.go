package train

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/trainer-olmo/checkpoint"
	"github.com/asteria-runtime/asteria/trainer-olmo/checkpoint/safetensors"
	"github.com/asteria-runtime/asteria/trainer-olmo/config"
	"github.com/asteria-runtime/asteria/trainer-olmo/data"
	"github.com/asteria-runtime/asteria/trainer-olmo/model"
)

// EvalResult is the loss on held-out text.
type EvalResult struct {
	CE     float64 `json:"ce"`     // mean cross-entropy in nats
	PPL    float64 `json:"ppl"`    // exp(CE)
	Labels int64   `json:"labels"` // targets that counted
	Tokens int64   `json:"tokens"` // tokens read
}

// lossModel is the part of a model that an evaluation needs.
type lossModel interface {
	Loss(model.Batch, model.LossOptions) (model.LossStats, error)
}

var _ lossModel = (*model.Model[float32])(nil)

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

// add evaluates rows of a batch.
func (e *evaluation) add(m lossModel, b *data.Batch) error {
	st, err := m.Loss(modelBatch(b, 0, b.Rows), model.LossOptions{})
	if err != nil {
		return err
	}
	e.labels += int64(st.Labels)
	e.tokens += int64(b.Rows * b.Seq)
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

// openHeldOut opens the data of the evaluation, nil when there is none.
func openHeldOut(c *config.Config) (source, error) {
	d := c.DataConfig()
	d.BatchInstances = c.EvalBatch()
	if len(c.Eval.Paths) > 0 {
		d.Corpus, d.Paths, d.LabelMaskPaths = "", c.Eval.Paths, nil
		return closable(data.OpenEval(d, int64(c.Eval.Tokens)))
	}
	if d.HeldOut == 0 && d.HeldOutTokens == 0 {
		return nil, nil
	}
	return closable(data.OpenHeldOut(d, int64(c.Eval.Tokens)))
}

// closable keeps a nil loader from becoming a source that is not nil.
func closable(l *data.Loader, err error) (source, error) {
	if err != nil {
		return nil, err
	}
	return l, nil
}

// evaluate reads all of src. It returns early with the context's error.
func evaluate(ctx context.Context, m lossModel, src source, legacy bool, b *data.Batch) (EvalResult, error) {
	e := newEvaluation(legacy)
	for k := range src.Batches() {
		if err := ctx.Err(); err != nil {
			return EvalResult{}, err
		}
		if err := src.Batch(k, b); err != nil {
			return EvalResult{}, fmt.Errorf("train: evaluation: %w", err)
		}
		if err := e.add(m, b); err != nil {
			return EvalResult{}, fmt.Errorf("train: evaluation: %w", err)
		}
	}
	return e.result(), nil
}

// errNoHeldOut says that there is nothing to evaluate on.
var errNoHeldOut = errors.New("train: no held-out data: set data.held_out or eval.paths")

// Eval measures the loss of a model on the held-out data of a configuration. path
// is a checkpoint, the folder of a run, whose newest checkpoint is taken, or a
// folder with a model in Hugging Face's format, which then describes the network.
func Eval(ctx context.Context, c *config.Config, path string) (EvalResult, error) {
	src, err := openHeldOut(c)
	if err != nil {
		return EvalResult{}, err
	}
	if src == nil {
		return EvalResult{}, errNoHeldOut
	}
	res, err := evalOn(ctx, c, path, src)
	return res, errors.Join(err, src.Close())
}

func evalOn(ctx context.Context, c *config.Config, path string, src source) (EvalResult, error) {
	eng := gemm.New(c.ComputeThreads())
	defer eng.Close()
	m, err := loadModel(c, path, eng)
	if err != nil {
		return EvalResult{}, err
	}
	defer m.Close()
	return evaluate(ctx, m, src, c.Eval.Metric == "legacy", new(data.Batch))
}

// loadModel reads weights from a checkpoint or a model folder.
func loadModel(c *config.Config, path string, eng *gemm.Engine) (*model.Model[float32], error) {
	ck, err := checkpoint.Load(path)
	if err != nil {
		if isModelFolder(path) {
			return safetensors.Import[float32](path, eng)
		}
		return nil, err
	}
	m, err := model.New[float32](c.ModelConfig(), eng)
	if err != nil {
		return nil, err
	}
	if err := ck.Weights(checkpoint.Weights(m.Params())); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}
