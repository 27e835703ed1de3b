// Package hooks says when work runs: named points around forward, backward and
// update of a training step, functions registered at them, schedules that choose
// the steps, and a bounded pool for what runs beside them.
//
// A trainer fires the points; everything that must happen beside the model
// (prefetching state, refreshing roots, starting a sync, saving) registers at
// them and stays out of the training loop:
//
//	StepBegin
//	  PreForward(0) PostForward(0) … PreForward(L-1) PostForward(L-1)
//	  PreBackward(L-1) PostBackward(L-1) … PreBackward(0) PostBackward(0)
//	  GradReady
//	  PreUpdate PostUpdate
//	StepEnd
//
// Forward and backward repeat for each micro-batch; GradReady comes once, after
// the last one. PreUpdate and PostUpdate may be fired per layer or once.
//
// # Order
//
// Hooks at a point run one after another on the goroutine that fires, in the
// order of registration. The first error ends the firing. Steps are logical time:
// no clock is read.
//
// # Concurrency
//
// A [Schedule] is safe for concurrent use. A firing works on the hooks that were
// registered when it began: one that is added meanwhile waits for the next
// firing, one that is removed before its turn does not run any more. Removing
// does not wait for a call in progress on another goroutine.
//
// # In the background
//
// A [Pool] runs jobs on a fixed number of threads of lowered priority. Its queue
// holds all that it is given, a job that panics or fails is told of, and one that
// never returns is abandoned by a watchdog and its worker replaced, so that nothing
// waits for it. A [Pace] holds its workers to a share of the processors. The
// watchdog, the time spent in jobs and the pace are all for which this package
// reads a clock; no result depends on it.
package hooks
