package hiersync_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asteria-runtime/asteria/hiersync"
	"github.com/asteria-runtime/asteria/hiersync/hiersynctest"
)

// simulation is one seeded world: a layout, a network with faults, a program of
// collectives that all ranks run, and perhaps a rank that is lost on the way.
type simulation struct {
	seed    uint64
	twin    hiersync.TwinOptions
	program []simOp
	results [][]float64   // of each operation
	lose    bool          // some rank goes away
	at      time.Duration // when, since the ranks met; 0: by message count
}

// simOp is one collective of the program.
type simOp struct {
	kind   int // 0 sum, 1 average, 2 broadcast, 3 allgather, 4 agree
	size   int
	root   int
	counts []int
}

func newSimulation(seed uint64) *simulation {
	g := rand.New(rand.NewPCG(seed, 7))
	ranks := 1 + g.IntN(9)
	s := &simulation{seed: seed}
	s.twin = hiersync.TwinOptions{
		Ranks: ranks, Nodes: make([]int, ranks),
		Options: hiersync.Options{
			Deadline: 2 * time.Second, Segment: []int{64, 256, 4096}[g.IntN(3)], Flat: g.IntN(4) == 0,
		},
		Faults: hiersync.Faults{
			Seed: seed, LatePayload: g.IntN(2) == 0, SlowNode: g.IntN(3),
			MaxDelay: []time.Duration{0, time.Millisecond, 10 * time.Millisecond}[g.IntN(3)],
			SlowBy:   []time.Duration{0, 0, 5 * time.Millisecond}[g.IntN(3)],
		},
	}
	nodes := 1 + g.IntN(4)
	for i := range s.twin.Nodes {
		s.twin.Nodes[i] = g.IntN(nodes)
	}
	for range 5 + g.IntN(25) {
		s.program = append(s.program, newSimOp(g, ranks))
	}
	if ranks > 1 && g.IntN(5) < 2 {
		s.loseOne(g, ranks)
	}
	return s
}

func (s *simulation) loseOne(g *rand.Rand, ranks int) {
	f := &s.twin.Faults
	s.lose, f.Lose, f.Stopped = true, g.IntN(ranks), g.IntN(2) == 0
	if g.IntN(2) == 0 {
		f.LoseAt = 1 + g.Int64N(150)
		return
	}
	s.at = time.Duration(1 + g.IntN(int(200*time.Millisecond)))
}

func newSimOp(g *rand.Rand, ranks int) simOp {
	op := simOp{kind: g.IntN(5), root: g.IntN(ranks)}
	op.size = []int{0, 1, 1 + g.IntN(40), 1 + g.IntN(3000)}[g.IntN(4)]
	if op.kind == 3 {
		op.counts, op.size = make([]int, ranks), 0
		for i := range op.counts {
			op.counts[i] = max(0, g.IntN(120)-30)
			op.size += op.counts[i]
		}
	}
	return op
}

// input is what a rank brings to operation i.
func (s *simulation) input(i, rank int) []float64 {
	op := s.program[i]
	x := hiersynctest.Values[float64](int(s.seed)*1000+i, rank, op.size)
	if op.kind == 3 {
		all := make([]float64, op.size)
		lo := 0
		for r := range rank {
			lo += op.counts[r]
		}
		copy(all[lo:], x[:op.counts[rank]])
		return all
	}
	return x
}

// want is the result of operation i.
func (s *simulation) want(t hiersync.Topology, i int) []float64 {
	op := s.program[i]
	ranks := len(t.NodeOf)
	switch op.kind {
	case 2:
		return s.input(i, op.root)
	case 3:
		var all []float64
		for r := range ranks {
			all = append(all, hiersynctest.Values[float64](int(s.seed)*1000+i, r, op.size)[:op.counts[r]]...)
		}
		return all
	}
	x := hiersynctest.Fold[float64](t, int(s.seed)*1000+i, op.size)
	if op.kind == 1 {
		for j := range x {
			x[j] /= float64(ranks)
		}
	}
	return x
}

// start begins operation i on one rank.
func (s *simulation) start(c *hiersync.Comm, h *hiersync.Handle, i int, x []float64) error {
	op := s.program[i]
	switch op.kind {
	case 1:
		return hiersync.StartAllreduce(c, h, hiersync.Average, x)
	case 2:
		return hiersync.StartBroadcast(c, h, op.root, x)
	case 3:
		return hiersync.StartAllgather(c, h, x, op.counts)
	}
	return hiersync.StartAllreduce(c, h, hiersync.Sum, x)
}

// rank runs the program on one rank. Some operations overlap: which is decided by
// the rank's own random numbers, as in life.
func (s *simulation) rank(ctx context.Context, c *hiersync.Comm) error {
	g := rand.New(rand.NewPCG(s.seed, uint64(100+c.Rank())))
	handles := make([]hiersync.Handle, len(s.program))
	data := make([][]float64, len(s.program))
	open := 0
	finish := func(upTo int) error {
		for ; open < upTo; open++ {
			if err := handles[open].Wait(ctx); err != nil {
				return err
			}
			if !slices.Equal(data[open], s.results[open]) {
				return fmt.Errorf("operation %d (%+v) gave a wrong result", open, s.program[open])
			}
			clear(data[open]) // the buffer is ours again
		}
		return nil
	}
	for i := range s.program {
		data[i] = s.input(i, c.Rank())
		if err := s.start(c, &handles[i], i, data[i]); err != nil {
			return err
		}
		if s.program[i].kind == 4 || g.IntN(3) == 0 {
			time.Sleep(time.Duration(g.IntN(int(3 * time.Millisecond)))) // the step computes
			if err := finish(i + 1 - g.IntN(2)); err != nil {
				return err
			}
		}
	}
	return finish(len(s.program))
}

// run is the whole simulation, inside a bubble of simulated time.
func (s *simulation) run(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	w, err := hiersync.NewTwin(ctx, s.twin)
	if err != nil {
		t.Fatalf("seed %d: %v", s.seed, err)
	}
	s.results = make([][]float64, len(s.program))
	for i := range s.program {
		s.results[i] = s.want(w.Comm(0).Topology(), i)
	}
	start := time.Now()
	if s.at > 0 {
		lose := w.Kill
		if s.twin.Faults.Stopped {
			lose = w.Stop
		}
		time.AfterFunc(s.at, func() { lose(s.twin.Faults.Lose) })
	}
	var wg sync.WaitGroup
	for _, c := range w.Comms() {
		wg.Go(func() {
			err := s.rank(ctx, c)
			s.judge(t, c, err, time.Since(start))
			if err := c.Close(); err != nil {
				t.Errorf("seed %d: rank %d: close: %v", s.seed, c.Rank(), err)
			}
		})
	}
	wg.Wait()
	time.Sleep(s.at) // the loss may come after the end
}

// judge checks how a rank's program ended.
func (s *simulation) judge(t *testing.T, c *hiersync.Comm, err error, took time.Duration) {
	var e *hiersync.RankError
	lost := s.twin.Faults.Lose
	switch {
	case err == nil:
	case !s.lose || !errors.As(err, &e):
		t.Errorf("seed %d: rank %d: %v", s.seed, c.Rank(), err)
	case c.Rank() == lost: // it may blame whom it likes
	case e.Rank != lost:
		t.Errorf("seed %d: rank %d blames rank %d, lost was %d (stopped %v): %v", s.seed, c.Rank(), e.Rank, lost, s.twin.Faults.Stopped, err)
	case !errors.Is(err, hiersync.ErrDead) && !s.twin.Faults.Stopped:
		t.Errorf("seed %d: rank %d: %v, want %v", s.seed, c.Rank(), err, hiersync.ErrDead)
	case s.at > 0 && took > s.at+s.twin.Options.Deadline+500*time.Millisecond:
		t.Errorf("seed %d: rank %d heard of the loss %v after it, the deadline is %v", s.seed, c.Rank(), took-s.at, s.twin.Options.Deadline)
	}
	if e != nil && c.Rank() != lost {
		if again := c.Barrier(context.Background()); !errors.Is(again, e.Cause) {
			t.Errorf("seed %d: rank %d: a later call returns %v, not %v", s.seed, c.Rank(), again, err)
		}
	}
}

// TestSimulation runs 1000 seeds (100 with -short). ASTERIA_SEED runs one.
func TestSimulation(t *testing.T) {
	first, n := uint64(0), uint64(1000)
	if testing.Short() {
		n = 100
	}
	if one, err := strconv.ParseUint(os.Getenv("ASTERIA_SEED"), 10, 64); err == nil {
		first, n = one, 1
	}
	lost := 0
	for seed := first; seed < first+n; seed++ {
		s := newSimulation(seed)
		if s.lose {
			lost++
		}
		synctest.Test(t, s.run)
		if t.Failed() {
			t.Fatalf("seed %d: %+v", seed, s.twin)
		}
	}
	t.Logf("%d worlds, %d of them lost a rank", n, lost)
}
