// Package parallel is a rank's part in a data-parallel run: which rows of a batch
// it computes, how gradients become the sum over all ranks while the backward pass
// goes on, who owns which part of the optimizer, and how the ranks prove that they
// still hold the same parameters.
//
// # What is identical on all ranks
//
// Sums come from one computation and reach all ranks as the same bits, so the
// global norm, finiteness, clipping and the skip rule, which are functions of the
// summed gradients and losses, are decided alike without asking. The loss of a
// step is added row by row over the whole batch: with the same parameters it has
// the bits of a run on one rank.
//
// # What is identical on any number of ranks
//
// The gradient too, on powers of two up to the groups that package model sums a batch
// in: the rows of a rank are those of an aligned range of groups, in the order in which
// hiersync adds the ranks ([Rows], [Place]), so that all of it is one tree, whoever
// computes its parts. With other numbers it agrees within rounding.
//
// # Order of operations
//
// Every rank starts the same sums in the same order, whether it had rows in this
// step or not: layer by layer as the last micro-batch leaves them, from the last
// layer to the first, then what belongs to no layer. A rank without rows starts
// them all at the end, with its gradients as they are: zeros.
//
// # Owners
//
// [Cut] is a pure function of names, sizes and the number of ranks. Each unit that
// must stay whole (a parameter with a second-order method) has one owner; what may
// be cut anywhere (AdamW is element-wise) fills the ranks up to the same number of
// bytes. Empty units, fewer units than ranks and ranks that own nothing are
// ordinary.
package parallel
