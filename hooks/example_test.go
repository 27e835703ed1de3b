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

// sum is a job that adds up numbers in its worker's buffer.
type sum struct {
	of    []int
	total chan int
}

func (s *sum) Run(_ context.Context, buffer []int) error {
	n := 0
	for _, v := range buffer[:copy(buffer, s.of)] {
		n += v
	}
	s.total <- n
	return nil
}

func (s *sum) Done(err error) {
	if err != nil {
		close(s.total)
	}
}

func ExamplePool() {
	pool, err := hooks.NewPool(hooks.PoolOptions[[]int]{
		Workers: 1,
		Open:    func() ([]int, error) { return make([]int, 16), nil },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer pool.Close(ctx)
	job := &sum{of: []int{1, 2, 3}, total: make(chan int, 1)}
	pool.Submit(job)
	fmt.Println(<-job.total)
	if err := pool.Drain(ctx); err != nil {
		fmt.Println(err)
	}
	fmt.Println(pool.Stats().Done, "done")
	// Output:
	// 6
	// 1 done
}
