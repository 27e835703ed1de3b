// Package nvmepage stores objects of any size on NVMe drives: by direct,
// asynchronous, checksummed I/O, and so that neither a crash nor a full or failing
// drive ever yields wrong bytes.
//
// # Layout
//
// A store owns one folder in each of its paths, and in it one data file that grows
// in steps. An object occupies an extent: a header page (identity, place, version,
// logical length, CRC-32C of the payload and of the header itself) and the payload, padded
// to the alignment of the drive. Objects go to the paths in turn.
//
// Save writes a new version to a new extent and gives the old one back after the
// write was confirmed. So an object is readable in its last confirmed version at
// every moment, and a torn write is never taken for data: the checksum covers it.
//
// # Direct I/O
//
// The alignment is asked from the system (statx, STATX_DIOALIGN), not assumed.
// Memory that is aligned is read and written in place; other memory goes through a
// bounded pool of staging buffers, which requests queue for. Where a file system
// refuses direct I/O the store uses the page cache and says so once.
//
// # Engines
//
// [Uring] submits through io_uring where the kernel allows it; [Pool] is a bounded
// set of goroutines with pread and pwrite. [Auto] prefers the first. A small object
// moves with its header in one request. A large one that is alone is read in parts, and
// its checksum is taken while other parts are on their way; one of several moves in as
// few requests as possible, because its checksum is taken beside the others' transfers.
// A caller of Save or Load whose object takes one request carries it out itself, on its
// own thread: waking another for it costs more than the queue gains.
//
// # Folders and crashes
//
// A store holds a lock on its folders while it lives. Open removes the folders of
// stores whose process is gone, or takes one over with Options.Recover: then every
// object whose newest complete version is on disk is there again, and torn ones are
// counted. A store has one identity in all of its paths, and every page carries it
// with its own place: pages of other stores and stray copies are counted, not taken,
// and a store that lacks one of its paths is refused. A dropped object does not come
// back in an older version that still stands in an extent given back: where there may
// be one, Drop records the object and its version beside the data (in the file
// "dropped": 16 bytes for each object that was ever dropped after more than one
// save, each page twice and written in turn). A live neighbour's folder in the same path
// is never touched.
//
// # Errors
//
// [ErrNotFound], [ErrCorrupt] (as a [*CorruptError] that names the object, the file
// and the place), [ErrFull], and the system's own errors (ENOSPC, EIO). A read or
// write that moves fewer bytes than asked is an error. After a failed Save the
// previous version is intact and the store usable.
//
// # Concurrency
//
// A Store is safe for concurrent use. Two saves of one object at the same time are
// both done; the one that was called later wins.
package nvmepage
