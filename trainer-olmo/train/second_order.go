package train

import (
	"fmt"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/trainer-olmo/asteria"
	"github.com/asteria-runtime/asteria/trainer-olmo/config"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// Seams that package asteria's runtime must fill.
var (
	_ param.Optimizer = (*asteria.Runtime[float32])(nil)
	_ param.Optimizer = (*asteria.Runtime[float64])(nil)
	_ totaler         = (*asteria.Runtime[float32])(nil)
)

// newSecondOrder builds the runtime of a second-order method.
func newSecondOrder[T gemm.Float](c *config.Config, params []param.Param[T], eng *gemm.Engine) (param.Optimizer, error) {
	if c.Runtime.Mode != "native" {
		return nil, fmt.Errorf("train: runtime.mode %q is not in this version, allowed: native", c.Runtime.Mode)
	}
	o, err := c.AsteriaOptions()
	if err != nil {
		return nil, fmt.Errorf("train: %w", err)
	}
	o.MemoryLimit = int64(c.Tiers.Device)
	return asteria.New(params, eng, o)
}

// blockHealth lists the blocks of a second-order method; others have none.
func blockHealth(o param.Optimizer) any {
	if h, ok := o.(interface{ Health() []asteria.BlockHealth }); ok {
		return h.Health()
	}
	return []asteria.BlockHealth{}
}

// totaler is a second-order optimizer as the metrics see it.
type totaler interface{ Totals() asteria.Totals }
