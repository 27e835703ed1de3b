package asteria

import (
	"cmp"
	"errors"
	"math"
	"time"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/hiersync"
	"github.com/asteria-runtime/asteria/invroot"
	"github.com/asteria-runtime/asteria/kron"
)

// What the ranks agree on about a refresh. Those that have nothing to say leave it
// zero, so that the bits of all ranks together are those of the one that has; where
// all speak, the same facts give the same bits, and failures add up.
const (
	headState  = iota // the bits below
	headAsOf          // call of the snapshot
	headBase          // three: version of the basis that the result is relative to
	headSides  = 5    // bits per side: moves, fresh << 8, failed << 16
	headSolver = 6    // evidence of the owner: 1 + method, precision << 8; 0 for none
	headNumber = 7    // three: residual, condition, damping, as bits
	headRetry  = 10
	headDouble = 11
	headTook   = 12 // nanoseconds
	headLen    = 13
)

// Bits of a head's state.
const (
	headEnded  = 1 << iota // it has ended
	headFailed             // as a whole: there is no result
)

// errElsewhere stands for the cause of a failure on the rank that refreshed.
var errElsewhere = errors.New("asteria: the refresh failed on the rank that ran it; see that rank's log")

// fill describes t's refresh, which has ended; evidence says whether this rank's
// evidence is what all ranks show.
func (t *task[T]) fill(h []int64, cause error, evidence bool) {
	res := &t.job.Result
	h[headState], h[headAsOf] = headEnded, t.asOf
	if evidence {
		t.record.fill(h)
		h[headTook] = int64(t.took)
	}
	if cause != nil {
		h[headState] |= headFailed
		return
	}
	for k := range kron.MaxOrder {
		h[headBase+k] = int64(res.Base[k])
		h[headSides] |= bit(res.Moves[k], k) | bit(res.Fresh[k], k)<<8 | bit(res.Err[k] != nil, k)<<16
	}
}

// fill writes the evidence of a recorder into h.
func (c *recorder[T]) fill(h []int64) {
	if c.calls == 0 {
		return
	}
	h[headSolver] = 1 + int64(c.worst.Method) + int64(c.worst.Precision)<<8
	for i, x := range [3]float64{c.worst.Residual, c.cond, c.worst.Ridge} {
		h[headNumber+i] = int64(math.Float64bits(x))
	}
	h[headRetry], h[headDouble] = c.total, c.double
}

// readEvidence is the inverse, on every rank.
func (c *recorder[T]) readEvidence(h []int64) {
	*c = recorder[T]{solver: c.solver}
	if h[headSolver] == 0 {
		return
	}
	number := func(i int) float64 { return math.Float64frombits(uint64(h[headNumber+i])) }
	c.calls, c.cond, c.total, c.double = 1, number(1), h[headRetry], h[headDouble]
	c.worst.Method = invroot.Method((h[headSolver] - 1) & 0xff)
	c.worst.Precision = invroot.Precision(h[headSolver] >> 8)
	c.worst.Residual, c.worst.Ridge = number(0), number(2)
}

// read takes over what the ranks agreed on about t's refresh. It returns the cause
// of a failure as a whole; a failure that this rank has seen keeps its own.
func (t *task[T]) read(h []int64, own error) error {
	res := &t.job.Result
	t.record.readEvidence(h)
	t.took = time.Duration(h[headTook])
	if h[headState]&headFailed != 0 {
		return cmp.Or(own, errElsewhere)
	}
	res.AsOf = h[headAsOf]
	for k := range kron.MaxOrder {
		res.Base[k] = uint64(h[headBase+k])
		res.Moves[k], res.Fresh[k] = h[headSides]>>k&1 == 1, h[headSides]>>(8+k)&1 == 1
		switch failed := h[headSides]>>(16+k)&1 == 1; {
		case failed && res.Err[k] == nil:
			res.Err[k] = errElsewhere
		case !failed:
			res.Err[k] = nil
		}
	}
	return nil
}

// send starts to bring the arrays of u's result to all ranks.
func (r *Runtime[T]) send(u *unit[T]) {
	res, p := &u.task.job.Result, r.peers
	for k := range u.block.Modes() {
		if res.Root[k] == nil || res.Err[k] != nil {
			continue
		}
		if r.opts.Peers.Roots == AverageRoots {
			p.window.start(func(h *hiersync.Handle) error {
				return hiersync.StartAllreduce(p.comm, h, hiersync.Average, res.Root[k])
			})
			continue
		}
		broadcast(p, u.owner, res.Root[k])
		if res.Rotation[k] != nil {
			broadcast(p, u.owner, res.Rotation[k])
		}
		if res.Fresh[k] {
			broadcast(p, u.owner, res.Values[k])
		}
		if res.Moves[k] {
			if u.mine {
				toWords(u.perm[k], res.Perm[k])
			}
			broadcast(p, u.owner, u.perm[k])
		}
	}
}

func broadcast[T gemm.Float, E hiersync.Element](p *peers[T], owner int, x []E) {
	p.window.start(func(h *hiersync.Handle) error { return hiersync.StartBroadcast(p.comm, h, owner, x) })
}

// toWords writes a permutation as it is sent and stored.
func toWords(dst []int64, perm []int) {
	for i, v := range perm {
		dst[i] = int64(v)
	}
}

// receive completes u's result, whose arrays have arrived.
func (u *unit[T]) receive() {
	res := &u.task.job.Result
	for k, p := range u.perm {
		if !u.mine && res.Moves[k] && res.Err[k] == nil {
			for i, v := range p {
				res.Perm[k][i] = int(v)
			}
		}
	}
}
