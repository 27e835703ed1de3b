package train

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/hiersync"
	"github.com/asteria-runtime/asteria/trainer-olmo/checkpoint"
	"github.com/asteria-runtime/asteria/trainer-olmo/model"
	"github.com/asteria-runtime/asteria/trainer-olmo/parallel"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// ranks is a stepper's part in a data-parallel run. A nil *ranks is a run on one
// rank, with all rows and nobody to ask.
//
// Note: waits and contexts. A rank that leaves a collective ends the run of all, so
// the waits here do not end with the run's context: that is looked at between
// steps, by all ranks together. hiersync bounds every wait by parallel.deadline.
type ranks[T gemm.Float] struct {
	comm      *hiersync.Comm
	grads     *parallel.Gradients[T]
	losses    *parallel.Losses
	params    []param.Param[T]
	place     int // in the order of summation
	hashEvery int64
	wire      wire
	last      bool  // the micro-batch that runs is the step's last on this rank
	err       error // of a sum that could not be started
}

func newRanks[T gemm.Float](c *hiersync.Comm, m *model.Model[T], hashEvery int64) *ranks[T] {
	if c == nil {
		return nil
	}
	var buckets []parallel.Bucket[T]
	for _, s := range m.GradSpans() {
		buckets = append(buckets, parallel.Bucket[T](s))
	}
	return &ranks[T]{
		comm: c, grads: parallel.NewGradients(c, buckets), losses: parallel.NewLosses(c),
		params: m.Params(), place: parallel.Place(c), hashEvery: hashEvery,
	}
}

// rows is the part of n rows that this rank computes.
func (r *ranks[T]) rows(n int) (lo, hi int) {
	if r == nil {
		return 0, n
	}
	return parallel.Rows(n, r.place, r.comm.Size())
}

// share exchanges the losses of n rows, of which ce and z are this rank's.
func (r *ranks[T]) share(n int, ce, z []float64, labels int) (ces, zs []float64, all int, err error) {
	if r == nil {
		return ce, z, labels, nil
	}
	return r.losses.Share(context.Background(), n, ce, z, labels)
}

// startAll starts the sums that the backward pass has not started.
func (r *ranks[T]) startAll() {
	if r != nil && r.err == nil {
		r.err = r.grads.Ready(-1)
	}
}

// finish waits until the gradients are the sums over all ranks.
func (r *ranks[T]) finish() error {
	if r == nil {
		return nil
	}
	err := r.grads.Finish(context.Background())
	r.err, err = nil, errors.Join(r.err, err)
	r.wire.count(r.comm, wireGradients)
	return err
}

// begin starts a step.
func (r *ranks[T]) begin() {
	if r != nil {
		r.wire.begin(r.comm)
	}
}

// updated ends its update.
func (r *ranks[T]) updated(opt param.Optimizer) {
	if r != nil {
		r.wire.countUpdate(r.comm, opt)
	}
}

// compare checks now and then that all ranks hold the same parameters.
func (r *ranks[T]) compare(step int64) error {
	if r == nil || r.hashEvery == 0 || step%r.hashEvery != 0 {
		return nil
	}
	return parallel.Compare(context.Background(), r.comm, r.params, step)
}

// any reports whether some rank says yes. All ranks ask together.
func (r *ranks[T]) any(yes bool) (bool, error) {
	if r == nil {
		return yes, nil
	}
	v := oneIf(yes)
	err := r.comm.Agree(context.Background(), hiersync.Max, &v)
	return v > 0, err
}

// watch is the observer of a backward pass: the hooks' if there are any, and the
// start of the sums during the last micro-batch.
func (s *stepper[T]) watch(last bool) model.Observer {
	if s.ranks != nil {
		s.ranks.last = last
		return summing[T]{s.ranks, s.firing}
	}
	if s.firing != nil { // a nil *firing in an interface is not nil
		return s.firing
	}
	return nil
}

// summing starts a layer's sum when the last micro-batch has left the layer.
type summing[T gemm.Float] struct {
	ranks  *ranks[T]
	firing *firing
}

func (o summing[T]) PreForward(layer int) {
	if o.firing != nil {
		o.firing.PreForward(layer)
	}
}

func (o summing[T]) PostForward(layer int) {
	if o.firing != nil {
		o.firing.PostForward(layer)
	}
}

func (o summing[T]) PreBackward(layer int) {
	if o.firing != nil {
		o.firing.PreBackward(layer)
	}
}

func (o summing[T]) PostBackward(layer int) {
	if o.firing != nil {
		o.firing.PostBackward(layer)
	}
	if o.ranks.last && o.ranks.err == nil {
		o.ranks.err = o.ranks.grads.Ready(layer)
	}
}

// lead reports whether this process writes the run folder: the only rank, or
// rank 0.
func (r *run[T]) lead() bool { return r.opts.Comm == nil || r.opts.Comm.Rank() == 0 }

// size is the number of ranks.
func (r *run[T]) size() int {
	if r.opts.Comm == nil {
		return 1
	}
	return r.opts.Comm.Size()
}

// inTurn runs f on rank 0 before the other ranks: it may write what they read.
func (r *run[T]) inTurn(f func() error) error {
	if r.opts.Comm == nil {
		return f()
	}
	var err error
	if r.lead() {
		r.patience(true)
		err = f()
		r.patience(false)
	}
	if err := r.together(err); err != nil {
		return err
	}
	if !r.lead() {
		err = f()
	}
	return r.together(err)
}

// together makes the failure of one rank the failure of all.
func (r *run[T]) together(err error) error {
	if r.opts.Comm == nil {
		return err
	}
	failed := int64(-1)
	if err != nil {
		failed = int64(r.opts.Comm.Rank())
	}
	if aerr := r.opts.Comm.Agree(context.Background(), hiersync.Max, &failed); aerr != nil {
		return errors.Join(err, aerr)
	}
	if err == nil && failed >= 0 {
		err = fmt.Errorf("train: %w: see the message of rank %d", ErrOtherRank, failed)
	}
	return err
}

// adopt gives every rank the state that rank 0 has resumed, loaded or begun with.
func (r *run[T]) adopt() error {
	c := r.opts.Comm
	if c == nil {
		return nil
	}
	ctx := context.Background()
	if err := broadcastPosition(ctx, c, &r.stepper.pos); err != nil {
		return err
	}
	for _, p := range r.stepper.params {
		if err := hiersync.Broadcast(ctx, c, 0, p.Value); err != nil {
			return err
		}
	}
	if err := r.stepper.sharding.scatter(); err != nil {
		return err
	}
	for _, s := range append(r.stepper.sections(), r.pending()...) {
		if err := broadcastSection(ctx, c, s); err != nil {
			return err
		}
	}
	if o, ok := r.stepper.opt.(shadowed); ok && (!r.lead() || r.stepper.sharding != nil) && r.stepper.pos.Step > 0 {
		return o.Restored()
	}
	return nil
}

// broadcastPosition replaces the position by that of rank 0.
func broadcastPosition(ctx context.Context, c *hiersync.Comm, p *checkpoint.Position) error {
	const size = 4 << 10 // far more than the numbers of a position need
	buf := make([]byte, size)
	raw, err := json.Marshal(p)
	if err != nil || len(raw) > size {
		return fmt.Errorf("train: position of %d bytes: %w", len(raw), err)
	}
	copy(buf, raw)
	if err := hiersync.Broadcast(ctx, c, 0, buf); err != nil {
		return err
	}
	return json.Unmarshal(bytes.TrimRight(buf, "\x00"), p)
}

func broadcastSection(ctx context.Context, c *hiersync.Comm, s param.Section) error {
	return errors.Join(
		hiersync.Broadcast(ctx, c, 0, s.F32),
		hiersync.Broadcast(ctx, c, 0, s.F64),
		hiersync.Broadcast(ctx, c, 0, s.I64),
	)
}

// patience says that this rank will keep the others waiting for something that may
// take long, such as a disk: they wait as long as it shows signs of life.
func (r *run[T]) patience(yes bool) {
	if r.opts.Comm != nil {
		r.opts.Comm.Busy(yes)
	}
}
