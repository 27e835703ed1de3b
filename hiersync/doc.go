// Package hiersync lets the ranks of a data-parallel run agree: sums, averages,
// broadcasts and small decisions in two stages, inside a node and then between
// nodes, with every wait bounded and every failure named.
//
// # Engines
//
// A [Comm] runs on one of two engines that pass one conformance suite
// (package hiersynctest): MPI, opened at run time from the Open MPI library of
// the machine ([OpenMPI]), and an in-process twin whose ranks are goroutines
// ([NewTwin]) and whose network can be told to delay, to reorder, to hand over
// payloads late, and to lose ranks ([Faults]).
//
// # Two stages
//
// Ranks that share memory form a node; nodes are ordered by their lowest rank
// ([Topology]). For a sum, each node splits the buffer into as many slices as
// the largest node has ranks. The owner of a slice adds up the contributions of
// its node; the partial sum of node 0 goes to the slice's owner on node 1, which
// adds its own, that of both to node 3, and so on as in a binary tree whose last
// node has the total; that comes back along the same ways and is handed out inside
// each node. So the buffer crosses twice for each node but one, however many ranks
// the node has. A broadcast crosses to each node once. [Options.Flat] takes the same sums
// without regard to nodes, for comparison.
//
// # Order of summation
//
// Floating-point sums are binary trees: neighbours are added, then the sums of
// neighbours, first over the ranks of a node, by rank, and then over the nodes. With
// a power of two of nodes, each with the same power of two of ranks, that is
// ((r0+r1)+(r2+r3))+((r4+r5)+(r6+r7)) for ranks in [Topology.Order], one or many a
// node; three are (r0+r1)+r2. The order does not depend on timing, slices, segments
// or on Flat. So the same ranks on the same nodes give the same bits, and all ranks
// get the bits of one computation.
//
// # Buffers
//
// A buffer that was given to an operation belongs to it until Wait returns (for
// the functions without a handle: until they return). Then it is the caller's
// again, also after an error: nothing reads or writes it late. The MPI library
// never sees a caller's buffer; it works on memory outside of the Go heap.
//
// # Rules of collectives
//
// All ranks start the same operations, with the same sizes, in the same order.
// That holds for ranks that have nothing to add: they pass zeros. Starting does
// not wait, so several operations may be under way. Different calls at the same
// place are found by the header of each message and reported as [ErrMismatch].
// Empty buffers need no message and no special case.
//
// # Failures
//
// Heartbeat connections between all ranks name a rank that died (its connection
// ends without a goodbye) or is stuck (no beat within [Options.Deadline]). An
// operation that does not end within the deadline names the rank that has not
// entered it. The first failure is told to all ranks and ends the Comm: every
// operation under way and every later call returns the same *[RankError].
//
// # Concurrency
//
// A Comm starts operations in the order of the calls, so one goroutine calls it,
// or the callers have an order of their own. One dispatcher goroutine does all
// communication; with MPI it keeps its OS thread. Handles may be waited for from
// any goroutine, one at a time. Close ends every goroutine that was started.
package hiersync
