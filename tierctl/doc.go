// Package tierctl decides which memory tier each object lives in, and moves it
// there: a controller over ordered tiers with capacities, leases on what is in
// use, and eviction by next use.
//
// # Tiers
//
// Tiers are ordered, fastest first. The first ones are addressable: their memory
// comes from [Tier.Alloc]. The last one may be a [Backing], such as a page store on
// NVMe, which objects must leave before they can be read. An object lives in
// exactly one tier; one that was loaded from the backing and not changed since
// keeps its copy there, so that its eviction costs no write.
//
// # Leases
//
// [Controller.Acquire] makes a group of objects addressable and holds them there
// until [Lease.Release]; their bytes do not move meanwhile. A group is taken as a
// whole or not at all, in the order of the calls, but for groups that are
// addressable already, which pass one whose objects are being read. So goroutines
// that hold one lease at a time cannot deadlock, however small the tiers are; a
// goroutine that holds a lease must not ask for another.
//
// # Who goes
//
// Every use of an object is announced with its logical time ([Tick]): training is
// periodic, so the next use of every object is known and evicting the one that is
// needed last is optimal (Belady). [LRU] is there for what has no schedule. Ties go
// to the smaller id. [Plan] is a pure function; the controller's own choices use
// the same order.
//
// # What comes
//
// [Controller.Ahead] has the movers read in the order of next use, through all of
// the capacity: what has just been used is needed last, so it is written back at
// once and what comes next takes its place. While nothing is leased, as between two
// updates of a model, the first objects of the next round are read. [Controller.Prefetch]
// hints at single objects, where no next use is known.
//
// # Contents that come and go
//
// An object may have no contents: after [Controller.AddEmpty], and after
// [Controller.Discard], as a buffer has between two uses. It takes no memory then,
// and its bytes are zero when it is leased again. [Controller.Abandon] removes an
// object that a computation may hold for ever.
//
// # When a tier fails
//
// An object leaves memory only after its write was confirmed. A write that fails
// leaves it where it is, marks the tier degraded, lowers that tier's capacity to
// what it holds, and is counted; from then on addressable tiers may exceed their
// capacity rather than stop the run, and [Stats] says by how much. A read that
// fails is returned by Acquire: there is no other copy to go on with.
//
// # Time
//
// No clock is read: ticks are arguments. Waiting is bounded by contexts.
//
// # Concurrency
//
// A Controller is safe for concurrent use. It starts Options.Movers goroutines,
// which serve prefetches and rebalance, and end with Close.
package tierctl
