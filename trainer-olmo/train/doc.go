// Package train runs the training loop: it builds data, model, optimizer and
// schedule from a configuration, takes steps, measures, saves and resumes.
//
// # One step
//
// A global batch is cut into micro-batches whose gradients add up. The divisor of
// the loss is known before the first of them, so the result depends on their size
// only through rounding. Then, in this order:
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
//	run.lock         held while a process trains here
//
// A run continues from the newest checkpoint of its folder; lines of metrics.jsonl
// beyond it are dropped, so that no step appears twice.
//
// Step times cover data, forward, backward and update. Evaluations and saves are
// outside of them and have metrics of their own. The first step of a process is
// left out of every speed.
package train
