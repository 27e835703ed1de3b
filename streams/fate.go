package streams

import "sync"

// Note: the fate of a stream on an accelerator
//
// The driver orders work but knows nothing of the errors of host functions. A fate
// does: it holds the first failure of a stream since its last Synchronize, with the
// number of the operation that failed. A point that an event marked is a fate and a
// number; it carries an error when the fate failed at a smaller one. A failure is
// handed on, when it happens, to the streams that wait for a later point; failures
// are rare, so that the ordinary path only ever compares numbers. The driver holds
// the waiting streams back until then, so no operation asks too early.

// fate is safe for concurrent use.
type fate struct {
	mu         sync.Mutex
	err        error
	at         uint64 // operation that failed; meaningful with err
	dependents []dependent
}

// dependent is a stream that waits for the point with a number.
type dependent struct {
	point uint64
	to    *fate
	after uint64 // number of the wait in the stream that waits
}

// point is a place in a stream.
type point struct {
	fate   *fate
	number uint64
}

// failure returns the error that an operation with this number must not run for.
func (f *fate) failure(number uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil && f.at < number {
		return f.err
	}
	return nil
}

// fail notes that operation at failed, and hands it on.
func (f *fate) fail(at uint64, err error) {
	f.mu.Lock()
	if f.err != nil && f.at <= at {
		f.mu.Unlock()
		return
	}
	f.err, f.at = err, at
	waiting := f.dependents
	f.mu.Unlock()
	for _, d := range waiting {
		if at < d.point {
			d.to.fail(d.after, err)
		}
	}
}

// follow makes to, from the operation after on, share what happened to f before p.
func (f *fate) follow(p uint64, to *fate, after uint64) {
	f.mu.Lock()
	err := f.err
	failed := err != nil && f.at < p
	if !failed {
		f.dependents = append(f.dependents, dependent{p, to, after})
	}
	f.mu.Unlock()
	if failed {
		to.fail(after, err)
	}
}

// settle forgets the dependents once every operation has run well.
func (f *fate) settle() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.dependents)
	f.dependents = f.dependents[:0]
}
