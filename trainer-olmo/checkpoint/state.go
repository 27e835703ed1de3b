package checkpoint

import (
	"encoding/json"
	"fmt"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// Format is the version of the folder's layout.
const Format = 1

// Position is where a run stands. It is part of the digest.
type Position struct {
	Step         int64 `json:"step"`          // optimizer steps done, skipped ones included
	Batch        int64 `json:"batch"`         // global batches consumed; the next one has this number
	MicroBatches int64 `json:"micro_batches"` // micro-batches consumed, as counted by one rank
	Tokens       int64 `json:"tokens"`        // tokens consumed
	Epoch        int64 `json:"epoch"`         // epoch of the last batch
	Skipped      int64 `json:"skipped"`       // steps given up by the skip-step rule
	NonFinite    int64 `json:"non_finite"`    // steps given up because a gradient was not finite
	// NonFiniteRun counts the latter since the last good step.
	NonFiniteRun int64 `json:"non_finite_run"`
	// Seed and DataSeed are the generators' seeds: the weights' and the order's.
	// Both generators are pure functions of seed and position, so that this is
	// the whole state of the run's randomness.
	Seed     int64 `json:"seed"`
	DataSeed int64 `json:"data_seed"`
}

// names of the sections, in the order of values.
var positionNames = []string{
	"step", "batch", "micro_batches", "tokens", "epoch", "skipped", "non_finite", "non_finite_run",
	"rng/seed", "rng/data_seed",
}

func (p *Position) values() []*int64 {
	return []*int64{
		&p.Step, &p.Batch, &p.MicroBatches, &p.Tokens, &p.Epoch, &p.Skipped, &p.NonFinite, &p.NonFiniteRun,
		&p.Seed, &p.DataSeed,
	}
}

// sections copies the position into sections.
func (p *Position) sections() []param.Section {
	s := make([]param.Section, len(positionNames))
	for i, v := range p.values() {
		s[i] = param.Section{Name: positionNames[i], I64: []int64{*v}}
	}
	return s
}

func (p *Position) take(s []param.Section) {
	for i, v := range p.values() {
		*v = s[i].I64[0]
	}
}

// Tensor is one weight, in place.
type Tensor struct {
	param.Section
	Shape []int
}

// Weights lists the parameters as tensors, in place.
func Weights[T gemm.Float](params []param.Param[T]) []Tensor {
	out := make([]Tensor, len(params))
	for i, p := range params {
		t := Tensor{Section: param.Section{Name: p.Name}, Shape: p.Shape}
		switch v := any(p.Value).(type) {
		case []float32:
			t.F32 = v
		case []float64:
			t.F64 = v
		}
		out[i] = t
	}
	return out
}

// State is everything that is saved. The slices are read in place: by
// [Store.Save] until it returns, by [Store.SaveAsync] only while it copies them.
type State struct {
	Position  Position
	Weights   []Tensor
	Optimizer []param.Section
	Runtime   []param.Section
	Origin    Origin
	// Config is written as config.yaml; it is not read back.
	Config []byte
	// ModelConfig is written as config.json, which makes the folder one that
	// Hugging Face libraries load; nil writes none.
	ModelConfig []byte
	// Freeze, where sections are held, keeps what they hold as it is now until
	// thaw is called, whatever training does meanwhile. SaveAsync calls it and
	// reads every section once, in the order of Optimizer and then of Runtime. nil
	// where none is held.
	Freeze func() (thaw func())
	// Ephemeral checkpoints do not count for Keep and go as soon as there is a
	// newer one.
	Ephemeral bool
}

// Origin says what made a state, beyond its numbers. A run that resumes
// elsewhere compares it.
type Origin struct {
	Kernel      string `json:"kernel"`           // kernel set of the matrix products
	Build       string `json:"build"`            // program and toolchain
	Precision   string `json:"precision"`        // float32 or float64
	Optimizer   string `json:"optimizer"`        // method
	Fingerprint string `json:"data_fingerprint"` // of the data set
	BatchTokens int64  `json:"batch_tokens"`     // tokens of a global batch
	MicroTokens int64  `json:"micro_tokens"`     // tokens of a micro-batch
}

// Meta is metadata.json.
type Meta struct {
	Format    int      `json:"format"`
	Position  Position `json:"position"`
	Origin    Origin   `json:"origin"`
	Ephemeral bool     `json:"ephemeral"`
	// Tensors are the checksums of the weights, sorted by name.
	Tensors []TensorSum `json:"tensors"`
	Files   []FileRef   `json:"files"`
	Digest  Digest      `json:"digest"`
}

// The files of a checkpoint.
const (
	weightsFile   = "model.safetensors"
	optimizerFile = "optimizer.state"
	positionFile  = "position.state"
	runtimeFile   = "runtime.state"
	configFile    = "config.yaml"
	modelFile     = "config.json"
	metaFile      = "metadata.json"
)

// group is one .state file and its part of the digest.
type group struct {
	file     string
	sections []param.Section
	digest   *string
}

// groups lists the .state files of a state in the order in which they are
// written.
func groups(d *Digest, st *State) []group {
	return []group{
		{optimizerFile, st.Optimizer, &d.Optimizer},
		{positionFile, st.Position.sections(), &d.Position},
		{runtimeFile, st.Runtime, &d.Runtime},
	}
}

// FileRef is a file of a checkpoint and its size in bytes.
type FileRef struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// parseMeta reads metadata.json.
func parseMeta(raw []byte) (Meta, error) {
	var m Meta
	if err := json.Unmarshal(raw, &m); err != nil {
		return m, err
	}
	if m.Format != Format {
		return m, fmt.Errorf("format version %d, this program reads %d", m.Format, Format)
	}
	return m, nil
}
