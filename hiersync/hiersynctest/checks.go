package hiersynctest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/asteria-runtime/asteria/hiersync"
)

func sums(ctx context.Context, c *hiersync.Comm) error {
	for _, n := range sizes() {
		if err := sum[float32](ctx, c, n); err != nil {
			return err
		}
		if err := sum[float64](ctx, c, n); err != nil {
			return err
		}
	}
	return nil
}

func sum[T hiersync.Float](ctx context.Context, c *hiersync.Comm, n int) error {
	x := Values[T](n, c.Rank(), n)
	var err error
	switch b := any(x).(type) {
	case []float32:
		err = hiersync.Allreduce(ctx, c, hiersync.Sum, b)
	case []float64:
		err = hiersync.Allreduce(ctx, c, hiersync.Sum, b)
	}
	return errors.Join(err, same("sum", x, Fold[T](c.Topology(), n, n)))
}

func averages(ctx context.Context, c *hiersync.Comm) error {
	for _, n := range sizes() {
		x, want := Values[float32](n, c.Rank(), n), Fold[float32](c.Topology(), n, n)
		for i := range want {
			want[i] /= float32(c.Size())
		}
		err := hiersync.Allreduce(ctx, c, hiersync.Average, x)
		if err := errors.Join(err, same("average", x, want)); err != nil {
			return err
		}
	}
	return nil
}

func integers(ctx context.Context, c *hiersync.Comm) error {
	fold := map[hiersync.Reduction]func(a, b int64) int64{
		hiersync.Sum: func(a, b int64) int64 { return a + b },
		hiersync.Max: func(a, b int64) int64 { return max(a, b) },
		hiersync.Min: func(a, b int64) int64 { return min(a, b) },
		hiersync.And: func(a, b int64) int64 { return a & b },
		hiersync.Or:  func(a, b int64) int64 { return a | b },
	}
	value := func(rank, i int) int64 { return int64(rand.New(rand.NewPCG(uint64(rank), uint64(i))).Uint64()) }
	for _, r := range []hiersync.Reduction{hiersync.Sum, hiersync.Max, hiersync.Min, hiersync.And, hiersync.Or} {
		for _, n := range []int{0, 1, 3, 700} {
			x, want := make([]int64, n), make([]int64, n)
			for i := range x {
				x[i], want[i] = value(c.Rank(), i), value(0, i)
				for rank := 1; rank < c.Size(); rank++ {
					want[i] = fold[r](want[i], value(rank, i))
				}
			}
			err := hiersync.Allreduce(ctx, c, r, x)
			if err := errors.Join(err, same(r.String(), x, want)); err != nil {
				return err
			}
		}
	}
	return nil
}

func broadcasts(ctx context.Context, c *hiersync.Comm) error {
	for root := range c.Size() {
		for _, n := range sizes() {
			want := Values[float64](root, n, n)
			x := make([]float64, n)
			if c.Rank() == root {
				copy(x, want)
			}
			err := hiersync.Broadcast(ctx, c, root, x)
			if err := errors.Join(err, same(fmt.Sprint("broadcast from ", root), x, want)); err != nil {
				return err
			}
		}
	}
	return nil
}

// overwrites is field failure A18: the sender's buffer changes right after the
// call returns, and nobody may see that.
func overwrites(ctx context.Context, c *hiersync.Comm) error {
	const rounds = 200
	x := make([]byte, 9001)
	for round := range rounds {
		root := round % c.Size()
		if c.Rank() == root {
			fill(x, byte(round))
		}
		if err := hiersync.Broadcast(ctx, c, root, x); err != nil {
			return err
		}
		if i := slices.IndexFunc(x, func(b byte) bool { return b != byte(round) }); i >= 0 {
			return fmt.Errorf("round %d: byte %d is %d, sent when the buffer held %d", round, i, x[i], byte(round))
		}
		fill(x, 0xEE)
	}
	return nil
}

func fill(b []byte, v byte) {
	for i := range b {
		b[i] = v
	}
}

func allgathers(ctx context.Context, c *hiersync.Comm) error {
	for round, base := range []int{0, 1, 3, 700, 5000} {
		counts, want, mine := make([]int, c.Size()), []float32(nil), 0
		for r := range counts {
			counts[r] = base * ((r + round) % 3) // every third rank has nothing
			if r == c.Rank() {
				mine = len(want)
			}
			want = append(want, Values[float32](round, r, counts[r])...)
		}
		x := make([]float32, len(want))
		copy(x[mine:], Values[float32](round, c.Rank(), counts[c.Rank()]))
		err := hiersync.Allgather(ctx, c, x, counts)
		if err := errors.Join(err, same("allgather", x, want)); err != nil {
			return err
		}
	}
	return nil
}

// absent is field failure A13: a rank without a gradient takes part in the call.
func absent(ctx context.Context, c *hiersync.Comm) error {
	const n = 1500
	for away := range c.Size() {
		want := foldOf(c.Topology(), func(rank int) []float32 {
			if rank == away {
				return make([]float32, n)
			}
			return Values[float32](away, rank, n)
		})
		x := Values[float32](away, c.Rank(), n)
		var h hiersync.Handle
		start := hiersync.StartAllreduce[float32]
		if c.Rank() == away {
			start = hiersync.StartAbsent[float32]
		}
		err := start(c, &h, hiersync.Sum, x)
		if err := errors.Join(err, h.Wait(ctx), same("sum without one rank", x, want)); err != nil {
			return err
		}
	}
	return nil
}

func agrees(ctx context.Context, c *hiersync.Comm) error {
	high, also := int64(c.Rank()), int64(-c.Rank())
	if err := c.Agree(ctx, hiersync.Max, &high, &also); err != nil {
		return err
	}
	if high != int64(c.Size()-1) || also != 0 {
		return fmt.Errorf("agreed on %d and %d", high, also)
	}
	ok := int64(1)
	if c.Rank() == c.Size()/2 {
		ok = 0
	}
	if err := c.Agree(ctx, hiersync.Min, &ok); err != nil {
		return err
	}
	if ok != 0 {
		return errors.New("one rank said no, and this one did not hear it")
	}
	return nil
}

// barriers compares clocks, so it is for ranks on one machine.
func barriers(ctx context.Context, c *hiersync.Comm) error {
	for late := range c.Size() {
		if c.Rank() == late {
			time.Sleep(5 * time.Millisecond)
		}
		came := time.Now().UnixNano()
		if err := c.Barrier(ctx); err != nil {
			return err
		}
		left := time.Now().UnixNano()
		if err := c.Agree(ctx, hiersync.Max, &came); err != nil {
			return err
		}
		if left < came {
			return fmt.Errorf("rank %d was late; this one left %v before the last came", late, time.Duration(came-left))
		}
	}
	return nil
}

// overlaps starts more operations than are worked on at once.
func overlaps(ctx context.Context, c *hiersync.Comm) error {
	const n = 100
	handles := make([]hiersync.Handle, n)
	bufs := make([][]float32, n)
	for i := range handles {
		size := i * 37 % 3001
		bufs[i] = Values[float32](i, c.Rank(), size)
		var err error
		if i%3 == 0 {
			err = hiersync.StartBroadcast(c, &handles[i], i%c.Size(), bufs[i])
		} else {
			err = hiersync.StartAllreduce(c, &handles[i], hiersync.Sum, bufs[i])
		}
		if err != nil {
			return err
		}
	}
	for _, i := range rand.New(rand.NewPCG(uint64(c.Rank()), 1)).Perm(n) {
		if err := handles[i].Wait(ctx); err != nil {
			return err
		}
		want := Values[float32](i, i%c.Size(), len(bufs[i]))
		if i%3 != 0 {
			want = Fold[float32](c.Topology(), i, len(bufs[i]))
		}
		if err := same(fmt.Sprint("operation ", i), bufs[i], want); err != nil {
			return err
		}
	}
	return nil
}

func repeats(ctx context.Context, c *hiersync.Comm) error {
	const n = 3001
	var first []float32
	for round := range 5 {
		x := Values[float32](9, c.Rank(), n)
		if err := hiersync.Allreduce(ctx, c, hiersync.Sum, x); err != nil {
			return err
		}
		if round > 0 {
			if err := same("repeated sum", x, first); err != nil {
				return err
			}
		}
		first = x
	}
	return nil
}

// counts checks what two stages are for: a buffer crosses to each node once, and
// for a sum once more on the way there.
func counts(ctx context.Context, c *hiersync.Comm) error {
	const n = 40000
	nodes := int64(len(c.Topology().Nodes))
	x := make([]float32, n)
	ops := []struct {
		name     string
		run      func() error
		crossing int64 // buffers between nodes
	}{
		{"allreduce", func() error { return hiersync.Allreduce(ctx, c, hiersync.Sum, x) }, 2 * (nodes - 1)},
		{"broadcast", func() error { return hiersync.Broadcast(ctx, c, c.Size()-1, x) }, nodes - 1},
	}
	for _, op := range ops {
		before := c.Stats()
		if err := op.run(); err != nil {
			return err
		}
		after := c.Stats()
		inter, intra := after.InterBytes-before.InterBytes, after.IntraBytes-before.IntraBytes
		if err := c.Agree(ctx, hiersync.Sum, &inter, &intra); err != nil {
			return err
		}
		want := op.crossing * 4 * n
		if inter < want || inter > want+want/50 {
			return fmt.Errorf("%s of %d bytes over %d nodes: %d bytes between nodes, want %d and headers", op.name, 4*n, nodes, inter, want)
		}
		if int64(c.Size()) > nodes && intra == 0 {
			return fmt.Errorf("%s: no bytes inside of nodes", op.name)
		}
	}
	return nil
}

func misuse(ctx context.Context, c *hiersync.Comm) error {
	x := make([]float32, 4)
	var h hiersync.Handle
	for name, err := range map[string]error{
		"a root that is no rank":    hiersync.StartBroadcast(c, &h, c.Size(), x),
		"a negative root":           hiersync.StartBroadcast(c, &h, -1, x),
		"the largest of floats":     hiersync.StartAllreduce(c, &h, hiersync.Max, x),
		"the average of integers":   hiersync.StartAllreduce(c, &h, hiersync.Average, make([]int64, 1)),
		"counts that do not add up": hiersync.StartAllgather(c, &h, x, slices.Repeat([]int{5}, c.Size())),
		"counts for too many ranks": hiersync.StartAllgather(c, &h, x, make([]int, c.Size()+1)),
		"a count below 0":           hiersync.StartAllgather(c, &h, x, slices.Repeat([]int{-1}, c.Size())),
	} {
		if err == nil {
			return fmt.Errorf("%s was accepted", name)
		}
	}
	if err := h.Wait(ctx); err != nil {
		return fmt.Errorf("waiting for a handle that was not started: %w", err)
	}
	if err := hiersync.StartAllreduce(c, &h, hiersync.Sum, x); err != nil {
		return err
	}
	if err := hiersync.StartAllreduce(c, &h, hiersync.Sum, x); err == nil {
		return errors.New("a handle was started twice")
	}
	return h.Wait(ctx)
}
