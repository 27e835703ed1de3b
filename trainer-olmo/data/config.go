package data

import (
	"errors"
	"fmt"
	"slices"
)

// CorpusGoRoot names the built-in corpus: the Go sources of the toolchain.
const CorpusGoRoot = "goroot"

// The orders of instances, see [Config].Order.
const (
	OrderCore   = "core"
	OrderLegacy = "legacy"
)

// The ways to cut files into instances, see [Config].Kind.
const (
	KindFixed  = "fsl"
	KindPadded = "padded"
	KindPacked = "packed"
)

// What happens to documents longer than an instance, see
// [Config].LongDocStrategy.
const (
	LongTruncate = "truncate"
	LongFragment = "fragment"
)

// How much of the token files Open reads to check ids, see [Config].Check.
const (
	CheckAuto = "auto"
	CheckFull = "full"
	CheckNone = "none"
)

// Config says which tokens a [Loader] serves, and in which order. The YAML
// keys are those of the section `data`; fields without a key come from other
// sections. The zero value of each field is the default given with it.
type Config struct {
	// Corpus is "" or "goroot". Exactly one of Corpus, Paths, Datasets is set.
	Corpus string `yaml:"corpus,omitempty"`
	// Paths are token files, or text files (see [IsText]) that are tokenized
	// into the cache first. All are of one sort. Folders and shell patterns are
	// not expanded, except by ExpandGlob.
	Paths []string `yaml:"paths,omitempty"`
	// Datasets is the legacy form of Paths: label → paths, read in the order of
	// the sorted labels.
	Datasets map[string][]string `yaml:"datasets,omitempty"`
	// ExpandGlob makes each of Paths a shell pattern; the matches of one are
	// sorted, none is an error.
	ExpandGlob bool `yaml:"expand_glob,omitempty"`
	// LabelMaskPaths holds a file of bool bytes for each token file: one byte a
	// token, 0 = do not predict this token.
	LabelMaskPaths []string `yaml:"label_mask_paths,omitempty"`
	// Tokenizer is "byte", the path of a tokenizer.json, or "" for token files
	// whose vocabulary the other fields give. Text needs one; "" then is byte.
	Tokenizer string `yaml:"tokenizer,omitempty"`
	// DType is the width of the token files: uint8, uint16, uint32 or uint64.
	// "" or "auto" is the smallest that holds VocabSize−1, as in OLMo-core.
	DType string `yaml:"dtype,omitempty"`
	// EOS, Pad and BOS are token ids. nil is the tokenizer's, or that of the
	// files' metadata; with BOS set a document ends where EOS is followed by it.
	EOS *int `yaml:"eos_token_id,omitempty"`
	Pad *int `yaml:"pad_token_id,omitempty"`
	BOS *int `yaml:"bos_token_id,omitempty"`

	// Kind is fsl (fixed-length chunks, default), padded (one document an
	// instance, for evaluation) or packed (whole documents, best fit).
	Kind string `yaml:"kind,omitempty"`
	// SequenceLength is the tokens of one instance, ≥ 1.
	SequenceLength int `yaml:"sequence_length,omitempty"`
	// MaxTargetSequenceLength M, a multiple of SequenceLength or 0, keeps the
	// order comparable between runs of different SequenceLength: files are cut
	// in pieces of M and the instances of a piece stay together. fsl only.
	MaxTargetSequenceLength int `yaml:"max_target_sequence_length,omitempty"`
	// LongDocStrategy is truncate (default) or fragment. packed only.
	LongDocStrategy string `yaml:"long_doc_strategy,omitempty"`
	// SourceGroupSize is how many consecutive files are packed together [1].
	SourceGroupSize int `yaml:"source_group_size,omitempty"`
	// DocLengths asks for Batch.DocLens.
	DocLengths bool `yaml:"generate_doc_lengths,omitempty"`
	// Filter, when not nil, sets InstanceMask to false where an instance
	// repeats itself.
	Filter *Filter `yaml:"instance_filter,omitempty"`

	// Order is core (default; epochs count from 1) or legacy (from 0).
	Order string `yaml:"order,omitempty"`
	// Seed of the order. OLMo used 6198 (legacy) and 34521 (core).
	Seed int64 `yaml:"seed,omitempty"`
	// KeepLast (legacy order) serves the incomplete last batch of an epoch
	// too, padding to a multiple of WorldSize by repeating instances from the
	// start: the legacy drop_last: false.
	KeepLast bool `yaml:"keep_last,omitempty"`
	// SourcePermutationSeed, when set, shuffles the files as Python's
	// random.Random(seed).shuffle does before they are numbered.
	SourcePermutationSeed *int64 `yaml:"source_permutation_seed,omitempty"`

	// HeldOut is the share of the tokens, taken from the end of the last file
	// back, that [Open] leaves out and [OpenHeldOut] serves; in [0, 1). The cut
	// is moved back to the end of a document where one is near. HeldOutTokens,
	// when positive, gives the number instead.
	HeldOut       float64 `yaml:"held_out,omitempty"`
	HeldOutTokens int64   `yaml:"held_out_tokens,omitempty"`
	// CacheFolder is where text and corpora are kept as token files. "" is the
	// folder asteria in the user's cache folder.
	CacheFolder string `yaml:"cache_folder,omitempty"`
	// MaxBytes limits a corpus, in bytes of text; 0 is 20,000,000, negative is
	// no limit.
	MaxBytes int64 `yaml:"max_bytes,omitempty"`
	// GoRoot is the root of the Go tree for the corpus goroot; "" asks the go
	// command.
	GoRoot string `yaml:"go_root,omitempty"`
	// Check says how much Open reads to find ids ≥ VocabSize and a wrong
	// width: full, none, or auto (default), which reads everything up to 4 GiB
	// and the start of each file beyond. Batch checks what it reads in any case.
	Check string `yaml:"check,omitempty"`

	// VocabSize is the number of ids that the model knows, padding rows
	// included: every id is below it. 0 is the tokenizer's.
	VocabSize int `yaml:"-"`
	// BatchInstances is the instances of one global batch, over all ranks.
	BatchInstances int `yaml:"-"`
	// Rank of WorldSize takes the instances Rank, Rank+WorldSize, … of each
	// global batch. WorldSize 0 is 1.
	Rank      int `yaml:"-"`
	WorldSize int `yaml:"-"`
}

// Validate reports all faults that can be seen without reading a file.
func (c Config) Validate() error {
	return errors.Join(c.validateSource(), c.validateShape(), c.validateOrder())
}

// validateSource looks at where tokens come from and what is kept from training.
func (c Config) validateSource() error {
	var errs []error
	sources := 0
	for _, set := range []bool{c.Corpus != "", len(c.Paths) > 0, len(c.Datasets) > 0} {
		if set {
			sources++
		}
	}
	if sources != 1 {
		errs = append(errs, fmt.Errorf("data: exactly one of data.corpus, data.paths and data.datasets must be set, %d are", sources))
	}
	errs = append(errs,
		oneOf("corpus", c.Corpus, CorpusGoRoot),
		oneOf("dtype", c.DType, "auto", "uint8", "uint16", "uint32", "uint64"),
		oneOf("check", c.Check, CheckAuto, CheckFull, CheckNone))
	if c.Corpus != "" && len(c.LabelMaskPaths) > 0 {
		errs = append(errs, errors.New("data: data.label_mask_paths needs data.paths or data.datasets"))
	}
	if c.HeldOut < 0 || c.HeldOut >= 1 {
		errs = append(errs, fmt.Errorf("data: data.held_out = %g, allowed [0, 1)", c.HeldOut))
	}
	if c.HeldOutTokens < 0 {
		errs = append(errs, fmt.Errorf("data: data.held_out_tokens = %d, allowed 0 and more", c.HeldOutTokens))
	}
	return errors.Join(errs...)
}

// validateShape looks at how files become instances.
func (c Config) validateShape() error {
	errs := []error{
		oneOf("kind", c.Kind, KindFixed, KindPadded, KindPacked),
		oneOf("long_doc_strategy", c.LongDocStrategy, LongTruncate, LongFragment),
	}
	if c.SequenceLength < 1 {
		errs = append(errs, fmt.Errorf("data: data.sequence_length = %d, allowed 1 and more", c.SequenceLength))
	}
	if m, s := c.MaxTargetSequenceLength, c.SequenceLength; m != 0 && s > 0 && (m < s || m%s != 0) {
		errs = append(errs, fmt.Errorf("data: data.max_target_sequence_length = %d, allowed 0 and multiples of data.sequence_length = %d", m, s))
	}
	if c.kind() == KindPacked && c.SequenceLength&(c.SequenceLength-1) != 0 {
		errs = append(errs, fmt.Errorf("data: data.sequence_length = %d, allowed with data.kind packed: powers of two", c.SequenceLength))
	}
	if c.SourceGroupSize < 0 {
		errs = append(errs, fmt.Errorf("data: data.source_group_size = %d, allowed 0 and more", c.SourceGroupSize))
	}
	if c.Filter != nil {
		errs = append(errs, c.Filter.validate())
	}
	return errors.Join(errs...)
}

// validateOrder looks at the order and at the share of this rank. A batch must
// divide evenly among the ranks: the gradient of a step is an average over equal
// parts.
func (c Config) validateOrder() error {
	errs := []error{oneOf("order", c.Order, OrderCore, OrderLegacy)}
	if c.Seed < 0 {
		errs = append(errs, fmt.Errorf("data: data.seed = %d, allowed 0 and more", c.Seed))
	}
	if c.KeepLast && c.Order != OrderLegacy {
		errs = append(errs, errors.New("data: data.keep_last is part of data.order legacy"))
	}
	if c.BatchInstances < 1 {
		errs = append(errs, fmt.Errorf("data: a global batch of %d instances, allowed 1 and more (train.global_batch_size counts tokens)", c.BatchInstances))
	}
	world := max(c.WorldSize, 1)
	if c.WorldSize < 0 || c.Rank < 0 || c.Rank >= world {
		errs = append(errs, fmt.Errorf("data: rank %d of %d", c.Rank, c.WorldSize))
	}
	if c.BatchInstances%world != 0 {
		errs = append(errs, fmt.Errorf("data: a global batch of %d instances is not a multiple of %d ranks", c.BatchInstances, world))
	}
	return errors.Join(errs...)
}

// kind, order and world are the fields with their defaults.
func (c Config) kind() string  { return orDefault(c.Kind, KindFixed) }
func (c Config) order() string { return orDefault(c.Order, OrderCore) }
func (c Config) world() int    { return max(c.WorldSize, 1) }

// chunk is how many consecutive instances the shuffle keeps together.
func (c Config) chunk() int {
	if c.MaxTargetSequenceLength == 0 {
		return 1
	}
	return c.MaxTargetSequenceLength / c.SequenceLength
}

// orDefault is v, or def where v is the zero value.
func orDefault[T comparable](v, def T) T {
	var unset T
	if v == unset {
		return def
	}
	return v
}

// oneOf refuses a value outside a closed list; "" is always allowed and means the
// default.
func oneOf(key, v string, allowed ...string) error {
	if v == "" || slices.Contains(allowed, v) {
		return nil
	}
	return fmt.Errorf("data: data.%s = %q, allowed %q", key, v, allowed)
}
