package train

import (
	"context"
	"errors"
	"fmt"

	"github.com/asteria-runtime/asteria/trainer-olmo/config"
)

// Outcome is how one run of a comparison ended.
type Outcome struct {
	Group  string
	Seed   int64
	Result Result
	Err    error
}

// Compare makes the runs of a comparison one after the other, each in its own
// folder, where it continues if it was interrupted. A run that fails does not
// keep the others from running; the error joins all failures. When the context
// ends, the runs that are left are not begun. before, if not nil, is called with
// the index of each run that begins.
func Compare(ctx context.Context, c *config.Comparison, o Options, before func(i int)) ([]Outcome, error) {
	return compareOn(ctx, c, o, before, openSources)
}

func compareOn(ctx context.Context, c *config.Comparison, o Options, before func(i int), open sources) ([]Outcome, error) {
	var out []Outcome
	var errs []error
	for i, r := range c.Runs {
		if ctx.Err() != nil {
			break
		}
		if before != nil {
			before(i)
		}
		res, err := runOn[float32](ctx, r.Config, o, open)
		if err != nil {
			errs = append(errs, fmt.Errorf("train: run %s, seed %d: %w", r.Group, r.Seed, err))
		}
		out = append(out, Outcome{Group: r.Group, Seed: r.Seed, Result: res, Err: err})
	}
	return out, errors.Join(errs...)
}
