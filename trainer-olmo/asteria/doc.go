// Package asteria is the second-order optimizer of a model: it cuts the matrix
// parameters into blocks, runs package kron's mathematics on them with package
// invroot's refreshes, inside the step or beside training, gives everything else
// to AdamW, and accounts for it all.
//
// It knows parameters by name, shape and role only, so that any model can use
// it: fill a slice of [param.Param], call [New], and after each backward pass
// [Runtime.Step]:
//
//	rt, err := asteria.New(params, engine, asteria.Options{Method: kron.SOAP, Mode: asteria.Asteria})
//	…
//	defer rt.Close()
//	for step := int64(1); step <= steps; step++ {
//		// gradients into params[i].Grad
//		if err := rt.Step(step, schedule.LR(step)); err != nil {
//			return err
//		}
//	}
//
// # Routing
//
// Parameters of role [param.Matrix] with two or three sides belong to the
// method; embeddings, head, norms and vectors belong to AdamW, at
// Options.AuxLR times the learning rate. Shampoo and KL cut sides above
// Options.MaxPrecondDim into blocks of that length; SOAP gives such sides no
// factor, as its reference does. With Options.OneSidedEmbeddings, embeddings and
// head get a factor on their last side. More than three sides are merged from the
// last one backwards. Parameters without a gradient are frozen.
//
// # Native mode
//
// This is the synchronous optimizer: a refresh that is due runs inside the step.
// It is the baseline that every other schedule must reproduce at lag zero.
// Refreshes of all blocks fall on the same step unless Options.Stagger spreads
// them.
//
// # Asteria mode
//
// A refresh that is due is only snapshotted inside the step. A worker computes it
// beside training, and the block adopts it at its adoption point some steps
// later: with [Scheduled] adoption exactly Async.Lag steps later, waiting if the
// worker is late, so that the bits depend on the schedule and on nothing that the
// workers do; with [Ready] adoption as soon as it is there, where what is due waits
// for its turn before it is snapshotted; see Note: turns. The first root or basis of
// a block, and everything before Async.LagStart, is computed inside the step as in
// native mode.
//
//	age        steps since the statistics of the result in use; native has 0..f-1
//	staleness  steps that a due refresh has not been adopted for; native has 0
//
// [Runtime.Load] says, with the arithmetic, when the workers cannot keep up, before
// any step waits. [Runtime.Hurry] frees a step that waits for a refresh that never
// returns.
//
// # Determinism
//
// Blocks are independent, so each thread takes the next one from a queue and
// computes it alone; a block too large for that is computed by all threads
// together. Either way its arithmetic is fixed by its shape: results depend neither
// on the number of threads nor on that of the workers. [Runtime.Sections] and,
// with refreshes in flight, [Runtime.PendingSections] hold all that a resumed run
// needs to continue with the same bits.
//
// # Ranks
//
// With [Options.Peers] several ranks that hold the same parameters and gradients share
// the refreshes: each block has one owner, which runs them, and all ranks adopt its
// results in the same step, with the bits of a run on one rank; see Note: owners.
// [Async.Selective] leaves out what the budget allows not to send.
//
// # Memory
//
// [PlanFor] lists every byte before anything is allocated; New refuses a plan
// above Options.MemoryLimit with the arithmetic. A step allocates nothing once the
// solvers have met their largest factors, but for three objects of some words for
// each refresh that is handed to a worker. In the mode Asteria each block has the
// memory of one refresh in flight, whose result becomes the spare slot.
//
// With [Options.Tiers] the state lives in budgets of RAM and on NVMe, and is leased
// for each piece of work. Placement changes no bit. [Runtime.Tiers] counts leases,
// waits and bytes moved; [Runtime.Freeze] lets a save read one step's state while
// later steps go on.
//
// # Failure
//
// A refresh that fails, in whichever way, keeps the previous root or basis.
// [Runtime.Health] tells, per block, its age, the solver's evidence and the
// failures so far; more than Options.Kron.MaxFailures of them in a row make Step
// return an error that names the block. A refresh that takes longer than
// Async.JobTimeout is a failure too, and its worker is replaced; see Note:
// refreshes inside the step for those. [Options.Solvers] lets a test break any
// block's solver. Gradients must be
// finite: the trainer decides to skip a step before it calls Step.
package asteria
