package hiersync_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/asteria-runtime/asteria/hiersync"
)

// Four ranks on two nodes average a gradient while they could compute on, agree
// on a step, and get a basis from the rank that owns it.
func Example() {
	ctx := context.Background()
	w, err := hiersync.NewTwin(ctx, hiersync.TwinOptions{Ranks: 4, Nodes: []int{0, 0, 1, 1}})
	if err != nil {
		fmt.Println(err)
		return
	}
	rank := func(c *hiersync.Comm) error {
		gradient := []float32{float32(c.Rank()), 1}
		var h hiersync.Handle
		if err := hiersync.StartAllreduce(c, &h, hiersync.Average, gradient); err != nil {
			return err
		}
		// ... the backward pass goes on here ...
		if err := h.Wait(ctx); err != nil {
			return err
		}
		step := int64(10 + c.Rank())
		if err := c.Agree(ctx, hiersync.Max, &step); err != nil {
			return err
		}
		const owner = 2
		basis := make([]float64, 1)
		if c.Rank() == owner {
			basis[0] = 0.25
		}
		if err := hiersync.Broadcast(ctx, c, owner, basis); err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Println(gradient, step, basis)
		}
		return c.Close()
	}
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i, c := range w.Comms() {
		wg.Go(func() { errs[i] = rank(c) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		fmt.Println(err)
	}
	// Output: [1.5 1] 13 [0.25]
}

// A rank that dies is named on all others, within the deadline.
func Example_deadRank() {
	ctx := context.Background()
	w, err := hiersync.NewTwin(ctx, hiersync.TwinOptions{Ranks: 3})
	if err != nil {
		fmt.Println(err)
		return
	}
	w.Kill(2)
	var wg sync.WaitGroup
	for _, c := range w.Comms() {
		wg.Go(func() {
			if err := c.Barrier(ctx); c.Rank() == 0 {
				var e *hiersync.RankError
				fmt.Println(errors.As(err, &e), e.Rank, errors.Is(err, hiersync.ErrDead))
			}
			c.Close()
		})
	}
	wg.Wait()
	// Output: true 2 true
}
