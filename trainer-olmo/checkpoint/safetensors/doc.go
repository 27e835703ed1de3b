// Package safetensors reads and writes model folders in the form of Hugging
// Face: config.json and safetensors files, one or sharded by an index.
//
// # Reading
//
// A file is trusted in nothing. Its header is bounded by [MaxHeader] and by the
// file's size; names may not repeat; byte ranges must match shape and type and
// must cover the data exactly, without gap or overlap. Files are read with pread
// and never mapped, so that one that is cut while it is read is an error and not
// a fault. [Load] is strict: tensors that are missing, unexpected, of another
// shape or of a type that holds no weights are all listed, each with its file
// ([MismatchError]).
//
// config.json is read in the forms of transformers 4 (rope_theta, rope_scaling)
// and 5 (rope_parameters, by layer type for OLMo-3). What is absent takes the
// default of the Hugging Face class, which is not always that of the published
// models. The number of vocabulary rows comes from the tensors.
//
// # Writing
//
// [Export] writes a folder beside its destination, syncs it and renames it, so
// that the destination has all of it or none. All values that have a default
// somewhere are written out. [Verify] reads a folder back and compares weights and
// logits bit for bit.
//
// # Types
//
// F32, F64, BF16 and F16 are read into float32 or float64 and rounded once.
package safetensors
