package coherreg_test

import (
	"context"
	"fmt"

	"github.com/asteria-runtime/asteria/coherreg"
)

// A refresh is snapshotted at step 10 and adopted three steps later, whenever
// its worker finished in between.
func Example() {
	reg, err := coherreg.New[string, float64]([]string{"layer0.q"}, coherreg.Options{
		Budget: coherreg.Budget{Soft: 2, Hard: 5},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	const lag = 3
	for step := int64(10); step <= 14; step++ {
		if step == 10 {
			if err := reg.Due("layer0.q", step, step+lag); err != nil {
				fmt.Println(err)
			}
			go reg.Publish("layer0.q", step, 0.5) // a worker, at its own pace
		}
		e, changed, err := reg.Adopt(context.Background(), "layer0.q", step)
		if err != nil {
			fmt.Println(err)
		}
		if changed {
			fmt.Printf("step %d adopts %v, as of step %d\n", step, e.Value, e.AsOf)
		}
	}
	// Output:
	// step 13 adopts 0.5, as of step 10
}
