package coherreg

import "context"

// flight is a refresh on its way. A slot has one, which it uses again and again;
// all but the channel is under the slot's mu.
type flight[V any] struct {
	asOf, adoptAt int64
	value         V
	version       uint64
	err           error // set by Fail: resolves as "no change"
	done          bool  // by Publish or Fail

	// resolved holds a token while done, and perhaps an old one: who takes it
	// looks at done, and puts it back for the next who waits.
	resolved chan struct{}
}

// begin starts a refresh; under mu.
func (s *slot[V]) begin(asOf, adoptAt int64) *flight[V] {
	f := &s.only
	select {
	case <-f.resolved:
	default:
	}
	f.asOf, f.adoptAt = asOf, adoptAt
	return f
}

// finish marks f as resolved; under mu.
func (f *flight[V]) finish() {
	f.done = true
	f.signal()
}

func (f *flight[V]) signal() {
	select {
	case f.resolved <- struct{}{}:
	default: // there is a token already
	}
}

// forget makes f ready for its next use; under mu. The channel stays: those who
// wait look at it without the lock.
func (f *flight[V]) forget() {
	var zero V
	f.value, f.version, f.err, f.done = zero, 0, nil, false
}

func (s *slot[V]) resolved(f *flight[V]) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return f.done || s.flight != f
}

// wait returns when f is resolved, or gone. Should the block's next refresh have
// begun by then, it may wait for that one, too.
func (s *slot[V]) wait(ctx context.Context, f *flight[V]) error {
	for !s.resolved(f) {
		select {
		case <-f.resolved:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	f.signal()
	return nil
}
