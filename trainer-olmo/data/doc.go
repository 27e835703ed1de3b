// Package data serves batches of tokens in exactly the order that OLMo's
// trainers serve them, and prepares the files that they come from.
//
// # Files
//
// A token file holds ids as raw little-endian integers of 8, 16, 32 or 64 bits
// and no header, although OLMo names it .npy. Documents follow each other, each
// ended by the EOS id. Two files may lie beside it: `name.csv.gz`, one line for
// each document (start, end, id, path, line; start and end in tokens), and
// `name.json`, the [Meta] that [Tokenize] writes, against which a reader checks
// width, size, vocabulary and EOS. Files are read with pread, never mapped: a
// mapped file that shrinks kills the process.
//
// # Instances and order
//
// A file of n tokens holds ⌊n/T⌋ instances of T tokens; the rest is dropped,
// file by file. The N instances of all files are numbered in file order and
// shuffled for each epoch as numpy's Generator(PCG64(seed+epoch)).shuffle does;
// the k-th global batch is the k-th row of B instances of that order, and rank
// r of R takes the columns r, r+R, …. So a batch is a pure function of its
// number, over all epochs, and resuming needs nothing but that number.
//
// A [Loader] belongs to one goroutine.
package data
