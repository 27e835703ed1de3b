package parallel

import (
	"context"
	"slices"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/hiersync"
)

// Bucket is a run of gradients in memory that become complete together.
type Bucket[T gemm.Float] struct {
	Layer int // whose backward pass completes them; -1: the end of the whole pass
	Grad  []T
}

// Gradients sums the gradients of all ranks, bucket by bucket, while the backward
// pass goes on. One goroutine.
//
// Note: overlap. A bucket's memory belongs to its sum from the moment its layer is
// done until Finish returns: the backward pass of the layers below does not touch
// it, and the optimizer starts after Finish.
type Gradients[T gemm.Float] struct {
	c       *hiersync.Comm
	buckets []Bucket[T] // in the order in which the sums start
	handles []hiersync.Handle
	next    int // first bucket whose sum was not started in this step
}

// NewGradients orders the buckets: layers from the last to the first, then those
// outside of the layers; equal ones stay in their order. All ranks pass buckets of
// the same sizes.
func NewGradients[T gemm.Float](c *hiersync.Comm, buckets []Bucket[T]) *Gradients[T] {
	g := &Gradients[T]{c: c, buckets: slices.Clone(buckets), handles: make([]hiersync.Handle, len(buckets))}
	slices.SortStableFunc(g.buckets, func(a, b Bucket[T]) int { return b.Layer - a.Layer })
	return g
}

// Ready says that the gradients of a layer, and of all above it, are complete on
// this rank: the last micro-batch has left it.
func (g *Gradients[T]) Ready(layer int) error {
	for g.next < len(g.buckets) && g.buckets[g.next].Layer >= layer {
		i := g.next
		if err := hiersync.StartAllreduce(g.c, &g.handles[i], hiersync.Sum, g.buckets[i].Grad); err != nil {
			return err
		}
		g.next++
	}
	return nil
}

// Finish starts what is left and waits for all sums of the step. It waits for
// every sum that was started, also after an error, so that the gradients are the
// caller's again.
func (g *Gradients[T]) Finish(ctx context.Context) error {
	err := g.Ready(-1)
	for i := range g.next {
		if werr := g.handles[i].Wait(ctx); err == nil {
			err = werr
		}
	}
	g.next = 0
	return err
}
