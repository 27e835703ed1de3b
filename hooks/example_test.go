package hooks_test

import (
	"context"
	"fmt"

	"github.com/asteria-runtime/asteria/hooks"
)

func ExampleSchedule() {
	var s hooks.Schedule
	say := func(_ context.Context, ev hooks.Event) error {
		fmt.Println(ev)
		return nil
	}
	s.On(hooks.PreForward, "prefetch", nil, say)
	remove := s.On(hooks.StepEnd, "save", hooks.Every(2, 0), say)

	ctx := context.Background()
	for step := int64(1); step <= 4; step++ {
		for layer := range 2 {
			if err := s.Fire(ctx, hooks.Event{Point: hooks.PreForward, Step: step, Layer: layer}); err != nil {
				fmt.Println(err)
			}
		}
		if err := s.Fire(ctx, hooks.Event{Point: hooks.StepEnd, Step: step, Layer: -1}); err != nil {
			fmt.Println(err)
		}
		if step == 2 {
			remove()
		}
	}
	// Output:
	// PreForward, step 1, layer 0
	// PreForward, step 1, layer 1
	// PreForward, step 2, layer 0
	// PreForward, step 2, layer 1
	// StepEnd, step 2
	// PreForward, step 3, layer 0
	// PreForward, step 3, layer 1
	// PreForward, step 4, layer 0
	// PreForward, step 4, layer 1
}

func ExampleStagger() {
	// Refresh costs of five blocks, spread over a refresh interval of three steps.
	fmt.Println(hooks.Stagger([]int64{512, 512, 256, 256, 512}, 3))
	// Output: [0 1 0 1 2]
}
