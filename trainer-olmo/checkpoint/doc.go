// Package checkpoint saves the state of a training run so that it survives
// crashes, kills and full disks, and restores it bit for bit.
//
// # A checkpoint
//
// A [Store] is a folder that holds one folder per checkpoint, step{N}, and the
// file latest with the name of the newest. A checkpoint holds:
//
//	model.safetensors   the weights under their Hugging Face names
//	optimizer.state     moments, factors, roots, counters
//	position.state      step, data position, counts that decide what comes next
//	runtime.state       what never changes a result: time spent, failures counted
//	config.yaml         the resolved configuration, for the reader
//	metadata.json       format version, files with sizes, digests; written last
//
// It is written under the name step{N}.tmp, every file is synced, then the folder
// is renamed and its parent synced. So a folder named step{N} is complete, and
// what a killed run leaves behind is recognised by its name and removed by
// [Open]. Folders are removed in the reverse order: renamed first.
//
// # The container
//
// The .state files have a format of their own, little-endian throughout:
//
//	magic     8 bytes  "ASTSTATE"
//	version   uint32   1
//	data               the sections, one after the other, without gaps
//	index              for each section: uint16 length of its name, the name
//	                   (UTF-8), uint8 type (1 float32, 2 float64, 3 int64),
//	                   uint64 number of elements, uint32 CRC-32C of its bytes
//	tail      32 bytes uint64 length of the index, uint32 number of sections,
//	                   uint32 CRC-32C of the index, uint64 length of the file,
//	                   magic "ETATSTSA"
//
// The offsets of the data follow from the index, so they cannot overlap or point
// outside. An index is at most 100 MB. A reader checks all of it before it
// touches any state, and names the file and the section that is at fault.
//
// # Digest
//
// A digest is a SHA-256 over each group of sections: weights, optimizer,
// position and runtime, and a total over the first three. Two runs have the same
// total when, and in practice only when, they are in the same state bit for bit.
package checkpoint
