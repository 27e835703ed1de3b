package train

import (
	"context"

	"github.com/asteria-runtime/asteria/hiersync"
)

// What the ranks of a run send to each other, by purpose. The few bytes of agreements
// on whether to go on, of comparisons and of checkpoints are not counted.
const (
	wireGradients  = iota // and the losses
	wireRoots             // results of refreshes, and the agreement on them
	wireParameters        // values that their owners have updated, with parallel.shard
	wirePurposes
)

// mWire are the metrics: bytes that all ranks together sent in a step, over links of
// two classes.
var mWire = [wirePurposes][2]string{
	{"parallel/gradients within nodes (bytes)", "parallel/gradients between nodes (bytes)"},
	{"parallel/roots within nodes (bytes)", "parallel/roots between nodes (bytes)"},
	{"parallel/parameters within nodes (bytes)", "parallel/parameters between nodes (bytes)"},
}

// wire counts what this rank sends in a step.
type wire struct {
	mark   hiersync.Stats // at the last count
	roots  [2]int64       // sent for roots by then, since the start
	sent   [2 * wirePurposes]int64
	handle hiersync.Handle
}

// sender is an optimizer that exchanges results of refreshes.
type sender interface {
	Sent() (within, between int64)
}

// begin starts a step.
func (w *wire) begin(c *hiersync.Comm) {
	w.mark = c.Stats()
	clear(w.sent[:])
}

// count adds what was sent since the last count to a purpose.
func (w *wire) count(c *hiersync.Comm, purpose int) {
	now := c.Stats()
	w.sent[2*purpose] += now.IntraBytes - w.mark.IntraBytes
	w.sent[2*purpose+1] += now.InterBytes - w.mark.InterBytes
	w.mark = now
}

// countUpdate divides what was sent since the last count into the optimizer's own
// and the rest.
func (w *wire) countUpdate(c *hiersync.Comm, opt any) {
	w.count(c, wireParameters)
	o, ok := opt.(sender)
	if !ok {
		return
	}
	within, between := o.Sent()
	for i, n := range [2]int64{within - w.roots[0], between - w.roots[1]} {
		w.sent[2*wireRoots+i] += n
		w.sent[2*wireParameters+i] -= n
	}
	w.roots = [2]int64{within, between}
}

// recordWire adds the bytes of all ranks to the open line of metrics. All ranks call
// it.
func (r *run[T]) recordWire() error {
	k := r.stepper.ranks
	if k == nil {
		return nil
	}
	w := &k.wire
	if err := hiersync.StartAllreduce(k.comm, &w.handle, hiersync.Sum, w.sent[:]); err != nil {
		return err
	}
	if err := w.handle.Wait(context.Background()); err != nil {
		return err
	}
	for purpose, names := range mWire {
		for i, name := range names {
			r.metrics.int(name, w.sent[2*purpose+i])
		}
	}
	return nil
}
