// Package coherreg is the CoherenceRegistry of the Asteria paper: it knows, for
// every preconditioner block, which result is in use, how old it is, and which
// refresh is on its way, and it holds a step back when a result would become
// older than the budget allows.
//
// # Words
//
// A refresh is due when a snapshot of a block is taken, at the step called its
// as-of step. A worker publishes a value for it, or fails it. The training step
// adopts the value at the block's one adoption point per step. Staleness of a
// block at a step is that step minus the as-of step of the oldest refresh that
// is due and not yet resolved by an adoption; 0 when none is. Age is the step
// minus the as-of step of the value in use.
//
// # Two ways to adopt
//
// [Scheduled]: a refresh due at step t is adopted at exactly the step that [Registry.Due]
// was given. If its value is late, Adopt waits for it: the bounded barrier. So
// the run does not depend on when workers finish, and repeats to the bit.
//
// [Ready]: a value is adopted at the first adoption point after it was
// published, and Adopt waits only when the hard budget would be exceeded. What
// was adopted when depends on timing; [Registry.Log] records it and
// [Options.Replay] repeats it.
//
// # Invariants
//
// A published value is never written again. Versions of a block only grow. A late
// value never replaces a newer one. There is at most one refresh in flight per
// block, and at most one adoption per block and step. Staleness that a caller
// observes after Adopt returned without error never exceeds the hard budget.
//
// # Concurrency
//
// A Registry is safe for concurrent use. Load is wait-free: one map read and one
// atomic load. Due and Adopt of one block belong to one goroutine, the one that
// runs the training step; Publish and Fail may come from any.
//
// No method reads a clock: steps are arguments, waiting is bounded by contexts.
package coherreg
