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
// slices is set.
type Section struct {
	Name string
	F32  []float32
	F64  []float64
	I64  []int64
}

// Optimizer updates parameters from their gradients.
type Optimizer interface {
	// Step applies update number step (1-based) at learning rate lr.
	Step(step int64, lr float64) error
	// Sections lists all state in a fixed order.
	Sections() []Section
}
