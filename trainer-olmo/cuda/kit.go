package cuda

import (
	"errors"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/invroot"
	"github.com/asteria-runtime/asteria/trainer-olmo/asteria"
)

var _ asteria.Backend = (*Context)(nil)

// Kit32 implements [asteria.Backend].
func (c *Context) Kit32(order int, solver *invroot.Solver[float32], o invroot.Options) (asteria.Kit[float32], error) {
	return newKit(c, order, solver, o)
}

// Kit64 implements [asteria.Backend].
func (c *Context) Kit64(order int, solver *invroot.Solver[float64], o invroot.Options) (asteria.Kit[float64], error) {
	return newKit(c, order, solver, o)
}

func newKit[T gemm.Float](c *Context, order int, solver *invroot.Solver[T], o invroot.Options) (asteria.Kit[T], error) {
	ops, err := NewOps[T](c)
	if err != nil {
		return asteria.Kit[T]{}, err
	}
	r, err := NewRefresher(c, order, solver, o)
	if err != nil {
		return asteria.Kit[T]{}, errors.Join(err, ops.Close())
	}
	return asteria.Kit[T]{Ops: ops, Solver: r, Close: func() error { return errors.Join(ops.Close(), r.Close()) }}, nil
}
