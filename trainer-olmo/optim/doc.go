// Package optim updates parameters from their gradients: AdamW and LionW with
// decoupled weight decay, gradient clipping by the global norm, the skip-step
// rule, and the learning-rate schedules of both OLMo trainers.
//
// All arithmetic runs over chunks whose bounds come from the tensors' sizes
// alone, and sums are added in chunk order, so a result has the same bits for
// any number of threads. After construction nothing here allocates.
//
// The trainer calls, once per step and in this order: [Clipper.Norm] (global
// norm and finiteness), [SkipRule.Accept], [Clipper.Clip], the schedule, and
// Step of the optimizer. Nothing in the optimizer's state changes before Step, so
// a step that is given up leaves no trace.
package optim
