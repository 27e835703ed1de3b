// Package train runs the training loop: it builds data, model, optimizer and
// schedule from a configuration, takes steps, measures, saves and resumes.
//
// # One step
//
// A global batch is cut into micro-batches whose gradients add up. The divisor of
// the loss is known before the first of them, and sums over tokens run sequence by
// sequence, so the result does not depend on their size: to the bit when a
// sequence is a multiple of 64 tokens, within rounding otherwise. Then, in this
// order:
//
//	norm      the L2 norm over all gradients; with a NaN or an infinity in the
//	          loss or the norm the step is given up and counted, and no bit of
//	          weights or optimizer changes
//	skip      the skip-step rule, if it is on, judges loss and norm
//	clip      gradients are scaled to the bound
//	update    the optimizer at the learning rate of the step's number
//
// The learning rate is a pure function of the step, a batch one of its number,
// and nothing else is random: so a run that resumes, at any step and any number
// of times, has the bits of one that was never stopped. Results do not depend on
// the number of threads.
//
// # Run folder
//
//	config.yaml      the resolved configuration
//	metrics.jsonl    one JSON object for each step, under the metric names of
//	                 OLMo-core; evaluations are in the object of their step
//	health.json      state of the optimizer's blocks at the last save
//	checkpoints/     see package checkpoint
//	adoptions.jsonl  with refreshes beside training: what was adopted when, which
//	                 runtime.replay repeats
//	trace.json       on request: a Chrome trace of the last process
//	run.lock         held while a process trains here
//
// A run continues from the newest checkpoint of its folder; lines of metrics.jsonl
// beyond it are dropped, so that no step appears twice. The configuration in force
// is always the one that the run is started with, never the one in the checkpoint.
// What cannot be continued is refused: another optimizer, precision or shape, and
// other data or another data.seed. Another learning rate, length or number of
// threads is what the user says; another size of the global batch keeps the place
// in the data. Another kernel set or build is warned of, because the last bits
// may differ.
//
// With runtime.mode asteria, refreshes run beside training. A save waits for those
// on their way and stores their results, so that a resumed run adopts them at the
// step that was planned. When the context ends, refreshes that keep the run from
// saving are given up after some seconds.
//
// Step times cover data, forward, backward and update. Evaluations and saves are
// outside of them and have metrics of their own. The first step of a process is
// left out of every speed.
package train
