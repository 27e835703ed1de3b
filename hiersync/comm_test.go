package hiersync_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asteria-runtime/asteria/hiersync"
	"github.com/asteria-runtime/asteria/hiersync/hiersynctest"
)

// TestFlatChangesNoBit compares the two views on the same layout, and what they
// send between nodes when ranks alternate.
func TestFlatChangesNoBit(t *testing.T) {
	const n = 30011
	for _, nodes := range hiersynctest.Worlds() {
		var results [2][]float32
		var inter [2]int64
		for i, flat := range []bool{false, true} {
			w := openTwin(t, hiersync.TwinOptions{Ranks: len(nodes), Nodes: nodes, Options: hiersync.Options{Flat: flat, Segment: 8192}})
			hiersynctest.Together(t, w.Comms(), func(ctx context.Context, c *hiersync.Comm) error {
				x := hiersynctest.Values[float32](3, c.Rank(), n)
				err := hiersync.Allreduce(ctx, c, hiersync.Sum, x)
				if c.Rank() == 0 {
					results[i] = x
				}
				return err
			})
			for _, c := range w.Comms() {
				inter[i] += c.Stats().InterBytes
			}
		}
		for i := range results[0] {
			if results[0][i] != results[1][i] {
				t.Fatalf("nodes %v: element %d is %v in two stages, %v flat", nodes, i, results[0][i], results[1][i])
			}
		}
		if len(nodes) == 4 && nodes[0] == nodes[2] && nodes[0] != nodes[1] {
			if ratio := float64(inter[0]) / float64(inter[1]); ratio > 0.55 {
				t.Errorf("nodes %v: two stages send %.2f of flat between nodes, want 0.55 or less", nodes, ratio)
			}
		}
	}
}

// TestNodesChangeNoBit: with powers of two the order of a sum is that of one binary
// tree, however many of the ranks share a node, and the sum of ranks whose values are
// sums themselves is that of more ranks.
func TestNodesChangeNoBit(t *testing.T) {
	const n = 5003
	total := func(nodes []int, value func(rank int) []float32) (sum []float32) {
		w := openTwin(t, hiersync.TwinOptions{Ranks: len(nodes), Nodes: nodes})
		hiersynctest.Together(t, w.Comms(), func(ctx context.Context, c *hiersync.Comm) error {
			x := value(c.Rank())
			err := hiersync.Allreduce(ctx, c, hiersync.Sum, x)
			if c.Rank() == len(nodes)-1 {
				sum = x
			}
			return err
		})
		return sum
	}
	one := func(rank int) []float32 { return hiersynctest.Values[float32](5, rank, n) }
	want := total(make([]int, 8), one)
	for _, nodes := range [][]int{{0, 0, 0, 0, 1, 1, 1, 1}, {0, 0, 1, 1, 2, 2, 3, 3}, {0, 1, 2, 3, 4, 5, 6, 7}} {
		if !slices.Equal(total(nodes, one), want) {
			t.Errorf("nodes %v: another sum", nodes)
		}
	}
	pair := func(rank int) []float32 {
		x := one(2 * rank)
		for i, y := range one(2*rank + 1) {
			x[i] += y
		}
		return x
	}
	for _, nodes := range [][]int{{0, 0, 0, 0}, {0, 0, 1, 1}, {0, 1, 2, 3}} {
		if !slices.Equal(total(nodes, pair), want) {
			t.Errorf("nodes %v: the sum of pairs is another one", nodes)
		}
	}
}

// TestA15SmallMatricesOverManyRanks is field failures A15 and A16: fewer rows than
// ranks, and rows that do not divide by the number of ranks.
func TestA15SmallMatricesOverManyRanks(t *testing.T) {
	for _, rows := range []int{1, 3, 18, 72} {
		for _, ranks := range []int{2, 4, 5, 7, 8, 16} {
			nodes := make([]int, ranks)
			for i := range nodes {
				nodes[i] = i / 3
			}
			w := openTwin(t, hiersync.TwinOptions{Ranks: ranks, Nodes: nodes})
			const cols = 5
			hiersynctest.Together(t, w.Comms(), func(ctx context.Context, c *hiersync.Comm) error {
				x := hiersynctest.Values[float64](rows, c.Rank(), rows*cols)
				want := hiersynctest.Fold[float64](c.Topology(), rows, rows*cols)
				if err := hiersync.Allreduce(ctx, c, hiersync.Sum, x); err != nil {
					return err
				}
				for i := range x {
					if x[i] != want[i] {
						return errors.New("the sum differs from the sum of one rank")
					}
				}
				counts := make([]int, ranks) // rows of a sharded matrix, some shards empty
				for r := range counts {
					counts[r] = (rows*(r+1)/ranks - rows*r/ranks) * cols
				}
				return hiersync.Allgather(ctx, c, x, counts)
			})
		}
	}
}

func TestDifferentCallsAreFound(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, c *hiersync.Comm) error{
		"sizes": func(ctx context.Context, c *hiersync.Comm) error {
			return hiersync.Allreduce(ctx, c, hiersync.Sum, make([]float32, 100+c.Rank()))
		},
		"types": func(ctx context.Context, c *hiersync.Comm) error {
			if c.Rank() == 1 {
				return hiersync.Allreduce(ctx, c, hiersync.Sum, make([]int64, 50))
			}
			return hiersync.Allreduce(ctx, c, hiersync.Sum, make([]float32, 100))
		},
		"operations": func(ctx context.Context, c *hiersync.Comm) error {
			if c.Rank() == 1 {
				// A root needs nothing of the others; its next call hears of it.
				if err := hiersync.Broadcast(ctx, c, 1, make([]float32, 100)); err != nil {
					return err
				}
				return c.Barrier(ctx)
			}
			return hiersync.Allreduce(ctx, c, hiersync.Sum, make([]float32, 100))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := openTwin(t, hiersync.TwinOptions{Ranks: 3})
			hiersynctest.Together(t, w.Comms(), func(ctx context.Context, c *hiersync.Comm) error {
				if err := call(ctx, c); !errors.Is(err, hiersync.ErrMismatch) {
					return errors.Join(errors.New("not found"), err)
				}
				return nil
			})
		})
	}
}

// bubble runs a world in simulated time.
func bubble(t *testing.T, o hiersync.TwinOptions, f func(ctx context.Context, w *hiersync.Twin, c *hiersync.Comm)) {
	synctest.Test(t, func(t *testing.T) {
		w, err := hiersync.NewTwin(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for _, c := range w.Comms() {
			wg.Go(func() {
				f(t.Context(), w, c)
				if err := c.Close(); err != nil {
					t.Errorf("rank %d: close: %v", c.Rank(), err)
				}
			})
		}
		wg.Wait()
	})
}

// TestALateRankIsNamed: rank 2 is alive but does not call. Rank 0 waits for rank
// 1, which waits for rank 2 as well; both name rank 2.
func TestALateRankIsNamed(t *testing.T) {
	o := hiersync.TwinOptions{Ranks: 3, Nodes: []int{0, 1, 2}, Options: hiersync.Options{Deadline: 3 * time.Second}}
	bubble(t, o, func(ctx context.Context, _ *hiersync.Twin, c *hiersync.Comm) {
		if c.Rank() == 2 {
			<-c.Failed()
			return
		}
		start := time.Now()
		err := c.Barrier(ctx)
		var e *hiersync.RankError
		if !errors.As(err, &e) || e.Rank != 2 || !errors.Is(err, hiersync.ErrLate) {
			t.Errorf("rank %d: %v, want rank 2 late", c.Rank(), err)
		}
		if took := time.Since(start); took < 3*time.Second || took > 4*time.Second {
			t.Errorf("rank %d waited %v for a deadline of 3s", c.Rank(), took)
		}
	})
}

func TestARankThatLeftIsNamed(t *testing.T) {
	o := hiersync.TwinOptions{Ranks: 3, Options: hiersync.Options{Deadline: 3 * time.Second}}
	bubble(t, o, func(ctx context.Context, _ *hiersync.Twin, c *hiersync.Comm) {
		if c.Rank() == 1 {
			return
		}
		err := c.Barrier(ctx)
		var e *hiersync.RankError
		if !errors.As(err, &e) || e.Rank != 1 || !errors.Is(err, hiersync.ErrLeft) {
			t.Errorf("rank %d: %v, want rank 1 left", c.Rank(), err)
		}
	})
}

func TestACanceledWaitEndsTheWorldOfAll(t *testing.T) {
	o := hiersync.TwinOptions{Ranks: 3}
	bubble(t, o, func(ctx context.Context, _ *hiersync.Twin, c *hiersync.Comm) {
		mine, cancel := context.WithCancel(ctx)
		defer cancel()
		if c.Rank() == 0 {
			time.AfterFunc(time.Second, cancel)
		}
		if c.Rank() == 2 {
			<-c.Failed()
		}
		err := c.Barrier(mine)
		var e *hiersync.RankError
		if !errors.As(err, &e) || e.Rank != 0 || !errors.Is(err, hiersync.ErrCanceled) {
			t.Errorf("rank %d: %v, want rank 0 canceled", c.Rank(), err)
		}
		if c.Rank() == 0 && !errors.Is(err, context.Canceled) {
			t.Errorf("rank 0 does not see its context's error in %v", err)
		}
	})
}

func TestCloseRefusesLaterCalls(t *testing.T) {
	bubble(t, hiersync.TwinOptions{Ranks: 2}, func(ctx context.Context, _ *hiersync.Twin, c *hiersync.Comm) {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := c.Barrier(ctx); !errors.Is(err, hiersync.ErrClosed) {
			t.Errorf("a barrier after Close: %v", err)
		}
	})
}

func TestOptionsReportAllFaults(t *testing.T) {
	o := hiersync.TwinOptions{
		Ranks: -1, Nodes: []int{1}, Faults: hiersync.Faults{MaxDelay: -1},
		Options: hiersync.Options{Deadline: -1, Beat: time.Hour, Segment: 63, Node: strings.Repeat("x", 300)},
	}
	err := o.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, word := range []string{"ranks", "nodes", "faults", "deadline", "beat", "segment", "node \"xxx"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error does not mention %q: %v", word, err)
		}
	}
}

// TestSteadyStateAllocatesNothing: sums of all ranks of a process, after a first
// round.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	w := openTwin(t, hiersync.TwinOptions{
		Ranks: 4, Nodes: []int{0, 0, 1, 1}, Options: hiersync.Options{Segment: 4096, Deadline: time.Hour, Beat: time.Minute},
	})
	const n = 20000
	start, done := make(chan struct{}), make(chan error)
	for _, c := range w.Comms() {
		go func() {
			var h hiersync.Handle
			buf := make([]float32, n)
			for range start {
				err := hiersync.StartAllreduce(c, &h, hiersync.Sum, buf)
				if err == nil {
					err = h.Wait(t.Context())
				}
				done <- err
			}
		}()
	}
	defer close(start)
	round := func() {
		for range 4 {
			start <- struct{}{}
		}
		for range 4 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	for range 20 {
		round()
	}
	if got := testing.AllocsPerRun(50, round); got != 0 {
		t.Errorf("%v allocations per allreduce of 4 ranks", got)
	}
}

func TestNoGoroutineIsLeft(t *testing.T) {
	before := runtime.NumGoroutine()
	for _, lose := range []bool{false, true} {
		w, err := hiersync.NewTwin(t.Context(), hiersync.TwinOptions{Ranks: 4, Nodes: []int{0, 1, 0, 1}})
		if err != nil {
			t.Fatal(err)
		}
		if lose {
			w.Kill(3)
		}
		var wg sync.WaitGroup
		for _, c := range w.Comms() {
			wg.Go(func() {
				if err := c.Barrier(t.Context()); (err != nil) != lose {
					t.Errorf("rank %d: %v", c.Rank(), err)
				}
				c.Close()
			})
		}
		wg.Wait()
	}
	for range 100 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	buf := make([]byte, 1<<16)
	t.Errorf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
}

func TestAnAbortIsHeardAtOnce(t *testing.T) {
	o := hiersync.TwinOptions{Ranks: 3, Options: hiersync.Options{Deadline: time.Hour}}
	why := errors.New("the disk is full")
	bubble(t, o, func(ctx context.Context, _ *hiersync.Twin, c *hiersync.Comm) {
		start := time.Now()
		if c.Rank() == 1 {
			c.Abort(why)
		}
		err := c.Barrier(ctx)
		var e *hiersync.RankError
		if !errors.As(err, &e) || e.Rank != 1 || !errors.Is(err, hiersync.ErrAborted) {
			t.Errorf("rank %d: %v, want rank 1 aborted", c.Rank(), err)
		}
		if c.Rank() == 1 && !errors.Is(err, why) {
			t.Errorf("rank 1 lost its reason: %v", err)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("rank %d heard after %v", c.Rank(), took)
		}
	})
}

func TestABusyRankIsWaitedFor(t *testing.T) {
	o := hiersync.TwinOptions{Ranks: 3, Nodes: []int{0, 1, 1}, Options: hiersync.Options{Deadline: time.Second}}
	bubble(t, o, func(ctx context.Context, _ *hiersync.Twin, c *hiersync.Comm) {
		if c.Rank() == 1 {
			c.Busy(true)
			time.Sleep(7 * time.Second) // a slow disk
			c.Busy(false)
		}
		if err := c.Barrier(ctx); err != nil {
			t.Errorf("rank %d: %v", c.Rank(), err)
		}
	})
}

func TestABusyRankThatDiesIsNamed(t *testing.T) {
	o := hiersync.TwinOptions{Ranks: 3, Options: hiersync.Options{Deadline: time.Second}}
	bubble(t, o, func(ctx context.Context, w *hiersync.Twin, c *hiersync.Comm) {
		if c.Rank() == 1 {
			c.Busy(true)
			time.Sleep(3 * time.Second)
			w.Stop(1)
			time.Sleep(3 * time.Second)
			return
		}
		err := c.Barrier(ctx)
		var e *hiersync.RankError
		if !errors.As(err, &e) || e.Rank != 1 || !errors.Is(err, hiersync.ErrStuck) {
			t.Errorf("rank %d: %v, want rank 1 stuck", c.Rank(), err)
		}
	})
}
