package parallel

import (
	"context"

	"github.com/asteria-runtime/asteria/hiersync"
)

// Rows is the part [lo, hi) of n rows that a rank computes: as even as possible,
// empty for some when there are fewer rows than ranks.
func Rows(n, rank, ranks int) (lo, hi int) { return n * rank / ranks, n * (rank + 1) / ranks }

// MicroBatches is how many micro-batches of at most micro rows all ranks together
// need for n rows.
func MicroBatches(n, micro, ranks int) int {
	count := 0
	for r := range ranks {
		lo, hi := Rows(n, r, ranks)
		count += (hi - lo + micro - 1) / micro
	}
	return count
}

// Losses adds up what the ranks saw of a batch. Its methods are called by all
// ranks.
type Losses struct {
	c      *hiersync.Comm
	rows   []float64
	counts []int
	sums   [2]float64
	ints   [1]int64
	handle hiersync.Handle
}

// NewLosses returns the losses of a rank.
func NewLosses(c *hiersync.Comm) *Losses { return &Losses{c: c, counts: make([]int, c.Size())} }

// Share takes this rank's part of the losses of n rows, one for each row that
// [Rows] gives it, and a sum and a count beside them. It returns the losses of all
// rows in their order, valid until the next call, and the sums over all ranks.
func (l *Losses) Share(ctx context.Context, n int, mine []float64, z float64, labels int) (rows []float64, zs float64, all int, err error) {
	if cap(l.rows) < n {
		l.rows = make([]float64, n)
	}
	l.rows = l.rows[:n]
	for r := range l.counts {
		lo, hi := Rows(n, r, l.c.Size())
		l.counts[r] = hi - lo
	}
	lo, hi := Rows(n, l.c.Rank(), l.c.Size())
	copy(l.rows[lo:hi], mine)
	l.sums[0], l.ints[0] = z, int64(labels)
	if err = hiersync.StartAllgather(l.c, &l.handle, l.rows, l.counts); err == nil {
		err = l.handle.Wait(ctx)
	}
	if err == nil {
		err = l.reduce(ctx)
	}
	return l.rows, l.sums[0], int(l.ints[0]), err
}

func (l *Losses) reduce(ctx context.Context) error {
	if err := hiersync.StartAllreduce(l.c, &l.handle, hiersync.Sum, l.sums[:1]); err != nil {
		return err
	}
	if err := l.handle.Wait(ctx); err != nil {
		return err
	}
	if err := hiersync.StartAllreduce(l.c, &l.handle, hiersync.Sum, l.ints[:]); err != nil {
		return err
	}
	return l.handle.Wait(ctx)
}
