package parallel

import (
	"context"
	"slices"

	"github.com/asteria-runtime/asteria/hiersync"
)

// Rows is the part [lo, hi) of n rows that a rank in the given place computes: as even
// as possible, empty for some when there are fewer rows than ranks. The rows of two,
// four, … neighbours, from an even place on, are those of one of half, a quarter, … as
// many ranks.
func Rows(n, place, ranks int) (lo, hi int) { return n * place / ranks, n * (place + 1) / ranks }

// Place is a rank's place in the order of summation, so that neighbours in that order
// have neighbouring rows: its number, unless ranks alternate between nodes.
func Place(c *hiersync.Comm) int { return slices.Index(c.Topology().Order(), c.Rank()) }

// Losses adds up what the ranks saw of a batch. Its methods are called by all
// ranks.
type Losses struct {
	c       *hiersync.Comm
	order   []int        // ranks by place
	counts  []int        // rows of each rank
	parts   [2][]float64 // cross-entropy and squared log-sum-exp of the rows, rank by rank
	rows    [2][]float64 // the same in the order of rows
	labels  [1]int64
	handles [3]hiersync.Handle
}

// NewLosses returns the losses of a rank.
func NewLosses(c *hiersync.Comm) *Losses {
	return &Losses{c: c, order: c.Topology().Order(), counts: make([]int, c.Size())}
}

// Share takes this rank's part of the losses of n rows, two for each row that [Rows]
// gives to its place, and a count. It returns the losses of all rows in their order,
// valid until the next call, and the sum of the counts.
func (l *Losses) Share(ctx context.Context, n int, ce, z []float64, labels int) (ces, zs []float64, all int, err error) {
	l.size(n)
	at := 0
	for _, count := range l.counts[:l.c.Rank()] {
		at += count
	}
	copy(l.parts[0][at:], ce)
	copy(l.parts[1][at:], z)
	l.labels[0] = int64(labels)
	started, err := l.start()
	for i := range started {
		if werr := l.handles[i].Wait(ctx); err == nil {
			err = werr
		}
	}
	l.sort(n)
	return l.rows[0], l.rows[1], int(l.labels[0]), err
}

// size makes room for n rows and counts those of each rank.
func (l *Losses) size(n int) {
	for i := range l.rows {
		if cap(l.rows[i]) < n {
			l.rows[i], l.parts[i] = make([]float64, n), make([]float64, n)
		}
		l.rows[i], l.parts[i] = l.rows[i][:n], l.parts[i][:n]
	}
	for place, r := range l.order {
		lo, hi := Rows(n, place, len(l.order))
		l.counts[r] = hi - lo
	}
}

// start starts the exchange and returns how many operations it consists of.
func (l *Losses) start() (started int, err error) {
	for i, part := range l.parts {
		if err := hiersync.StartAllgather(l.c, &l.handles[i], part, l.counts); err != nil {
			return i, err
		}
	}
	if err := hiersync.StartAllreduce(l.c, &l.handles[2], hiersync.Sum, l.labels[:]); err != nil {
		return 2, err
	}
	return 3, nil
}

// sort puts the parts of the ranks in the order of the n rows.
func (l *Losses) sort(n int) {
	at := 0
	for rank, count := range l.counts {
		lo, hi := Rows(n, slices.Index(l.order, rank), len(l.order))
		for i := range l.rows {
			copy(l.rows[i][lo:hi], l.parts[i][at:at+count])
		}
		at += count
	}
}
