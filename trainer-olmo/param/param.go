// Package param describes the named tensors that a model owns, an optimizer
// updates and a checkpoint stores. It exists so that those three need not know
// each other.
package param

import "github.com/asteria-runtime/asteria/gemm"

// Role says what a tensor is for; optimizers and weight decay choose by it.
type Role uint8

// The roles of an OLMo model's tensors.
const (
	Matrix    Role = iota // a linear layer's weight, [out, in]
	Embedding             // token embeddings, [vocab, d_model]
	Head                  // output projection, [vocab, d_model]
	Norm                  // a norm's weight, [width]
)

// Param is one named tensor with its gradient. Value and Grad have the product
// of Shape as length, row-major, and keep their address for the model's life.
type Param[T gemm.Float] struct {
	Name  string // Hugging Face name, such as model.layers.0.mlp.up_proj.weight
	Shape []int
	Role  Role
	Layer int // index of the block that owns it, -1 outside the blocks
	Value []T
	Grad  []T
}

// Section is one named piece of optimizer or trainer state, in place: a
// checkpoint reads it, and a restore writes through it. Exactly one of the
// slices is set, or Held.
type Section struct {
	Name string
	F32  []float32
	F64  []float64
	I64  []int64
	// Held stands for a slice whose memory is not always there.
	Held *Held
}

// Held is a section of floating-point numbers that must be held to be read or
// written.
type Held struct {
	Len    int  // elements
	Double bool // they are float64, not float32
	// Hold returns the section with its slice set, valid until release is called
	// once; write says that its elements will be written. A goroutine holds one
	// section at a time.
	Hold func(write bool) (s Section, release func(), err error)
}

// With calls use with the section's slice in place, held for that time if need be.
func (s Section) With(write bool, use func(Section) error) error {
	if s.Held == nil {
		return use(s)
	}
	held, release, err := s.Held.Hold(write)
	if err != nil {
		return err
	}
	defer release()
	return use(held)
}

// Optimizer updates parameters from their gradients.
type Optimizer interface {
	// Step applies update number step (1-based) at learning rate lr.
	Step(step int64, lr float64) error
	// Sections lists all state in a fixed order.
	Sections() []Section
}
