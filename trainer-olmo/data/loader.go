package data

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/asteria-runtime/asteria/trainer-olmo/tokenizer"
)

// Loader serves global batches by number. One goroutine.
//
// Note: no position. A Loader has no notion of the batch served last: Batch(k) is
// computed from k, the seed and the files, over as many epochs as k needs. A
// trainer that resumes asks for the next number; there is no state to save, to
// restore, or to get wrong in the second epoch. What it keeps between calls, the
// order of the epoch in use (4 bytes an instance) and open files, is a cache.
type Loader struct {
	cfg      Config
	vocab    vocabulary
	files    []tokenFile
	set      *instanceSet
	schedule schedule
	reader   reader
	tok      tokenizer.Tokenizer
	warnings []string
	print    string

	masked bool    // batches have a label mask: files have some, or rows are padded
	pieces []piece // scratch of fill
}

// Open prepares the training part of the data that cfg names: it tokenizes text
// that is not in the cache yet, checks the token files (see [Config.Check]) and
// refuses a data set smaller than one batch. The caller closes the Loader.
func Open(cfg Config) (*Loader, error) { return open(cfg, openTraining) }

// OpenHeldOut prepares the part that [Config.HeldOut] keeps from training, for
// evaluation: in a fixed order, always the same tokens. tokens, rounded up to
// whole instances and evenly spread, bounds how many are served; 0 is all. The
// last batch may be short.
func OpenHeldOut(cfg Config, tokens int64) (*Loader, error) {
	if cfg.HeldOut == 0 && cfg.HeldOutTokens == 0 {
		return nil, errors.New("data: nothing is held out: set data.held_out or data.held_out_tokens")
	}
	return openEval(cfg, tokens, openHeldOut)
}

// OpenEval prepares all of the data that cfg names for evaluation, as
// [OpenHeldOut] does: for files that are not trained on.
func OpenEval(cfg Config, tokens int64) (*Loader, error) { return openEval(cfg, tokens, openAll) }

// part is the part of a data set that is opened.
type part int

const (
	openTraining part = iota
	openHeldOut
	openAll
)

// openEval opens a part and fixes its order: instance j of m, taken from n, is
// ⌊j·n/m⌋, so that a small evaluation still samples all of the data.
func openEval(cfg Config, tokens int64, p part) (*Loader, error) {
	l, err := open(cfg, p)
	if err != nil {
		return nil, err
	}
	n := l.set.count()
	take := n
	if seq := int64(cfg.SequenceLength); tokens > 0 {
		take = min(n, (tokens+seq-1)/seq)
	}
	fixed := make([]uint32, take)
	for i := range fixed {
		fixed[i] = uint32(int64(i) * n / take)
	}
	l.schedule.fixed = fixed
	return l, nil
}

// open validates, then opens; on an error nothing stays open.
func open(cfg Config, p part) (*Loader, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	l := &Loader{cfg: cfg}
	if err := l.open(p); err != nil {
		return nil, errors.Join(err, l.reader.close())
	}
	return l, nil
}

// open does the work in the order in which faults are cheapest to explain: names
// and metadata, ids, the split, the instances, and last whether they suffice.
func (l *Loader) open(p part) error {
	src, err := openSource(l.cfg, &l.reader)
	if err != nil {
		return err
	}
	l.files, l.vocab, l.tok = src.files, src.vocab, src.tok
	if l.warnings, err = l.reader.checkTokens(l.files, l.vocab, orDefault(l.cfg.Check, CheckAuto)); err != nil {
		return err
	}
	if p != openAll {
		if err := l.split(p == openHeldOut); err != nil {
			return err
		}
	}
	if l.set, err = l.reader.instancesOf(l.cfg, l.files, l.vocab); err != nil {
		return err
	}
	l.masked = l.set.padded || slices.ContainsFunc(l.files, func(f tokenFile) bool { return f.mask != "" })
	l.schedule = schedule{n: int(l.set.count()), chunk: l.cfg.chunk(), world: l.cfg.world(), batch: l.cfg.BatchInstances,
		seed: uint64(l.cfg.Seed), legacy: l.cfg.order() == OrderLegacy, keepLast: l.cfg.KeepLast}
	l.print = l.fingerprint()
	return l.checkSize(p)
}

// checkSize refuses data sets with too few or too many instances.
func (l *Loader) checkSize(p part) error {
	n := l.set.count()
	tokens := int64(0)
	for i := range l.files {
		tokens += l.files[i].part.length()
	}
	what := fmt.Sprintf("data: %d files with %d tokens give %d instances of %d tokens", len(l.files), tokens, n, l.cfg.SequenceLength)
	switch {
	case n > 1<<32-1:
		return fmt.Errorf("%s; allowed below 2^32", what)
	case n == 0:
		return fmt.Errorf("%s: each file must hold at least one; shorten data.sequence_length or give more data", what)
	case p == openTraining && l.schedule.batches() == 0:
		return fmt.Errorf("%s, fewer than the %d of one global batch; lower train.global_batch_size or data.sequence_length, or give more data", what, l.cfg.BatchInstances)
	}
	return nil
}

// Close closes the files.
func (l *Loader) Close() error { return l.reader.close() }

// Batches is the number of global batches in one epoch.
func (l *Loader) Batches() int64 { return l.schedule.batches() }

// Instances is the number of instances in the part that is served.
func (l *Loader) Instances() int64 { return l.set.count() }

// Tokens is the number of tokens that one epoch, or a whole evaluation, serves,
// padding included, over all ranks.
func (l *Loader) Tokens() int64 {
	if l.schedule.keepLast || l.schedule.fixed != nil {
		return int64(l.schedule.length()) * l.set.seq
	}
	return l.Batches() * int64(l.schedule.batch) * l.set.seq
}

// VocabSize is the number of ids that the model must know: Config.VocabSize, or
// the tokenizer's.
func (l *Loader) VocabSize() int { return l.vocab.size }

// EOS and Pad are the special ids in use, −1 where there is none.
func (l *Loader) EOS() int { return l.vocab.eos }

// Pad is the padding id, −1 where there is none.
func (l *Loader) Pad() int { return l.vocab.pad }

// Tokenizer is the tokenizer that the configuration names, or nil.
func (l *Loader) Tokenizer() tokenizer.Tokenizer { return l.tok }

// Warnings are findings that do not stop a run, such as an EOS that never
// occurs; to be shown once.
func (l *Loader) Warnings() []string { return l.warnings }

// Files are the token files in the order of their instances.
func (l *Loader) Files() []string {
	paths := make([]string, len(l.files))
	for i := range l.files {
		paths[i] = l.files[i].path
	}
	return paths
}

// Fingerprint identifies, in hex, everything that decides what batch k holds,
// except the batch size and the ranks: kind, lengths, ids, order and seed, and
// the names, sizes and, where metadata has them, hashes of the files. Two loaders
// with equal fingerprints can continue each other's run.
func (l *Loader) Fingerprint() string { return l.print }

// fingerprint writes each fact on a line of its own with a version in front, so
// that no two sets of facts have the same text.
func (l *Loader) fingerprint() string {
	c, v := l.cfg, l.vocab
	h := sha256.New()
	fmt.Fprintf(h, "asteria-data 1\n%s %d %d %s %d %t\n", c.kind(), c.SequenceLength, c.MaxTargetSequenceLength,
		orDefault(c.LongDocStrategy, LongTruncate), max(c.SourceGroupSize, 1), c.DocLengths)
	fmt.Fprintf(h, "%d %d %d %d\n", v.natural, v.eos, v.pad, v.bos)
	fmt.Fprintf(h, "%s %d %t\n", c.order(), c.Seed, c.KeepLast)
	if c.Filter != nil {
		fmt.Fprintf(h, "%+v\n", c.Filter.withDefaults())
	}
	for i := range l.files {
		f := &l.files[i]
		fmt.Fprintf(h, "%q %s %d %d %d %t\n", f.base(), f.width, f.tokens, f.part.start, f.part.end, f.mask != "")
		if f.meta != nil {
			fmt.Fprintln(h, f.meta.SHA256)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Batch fills b with this rank's part of global batch k, counted from 0 over
// all epochs. It reuses b's memory and allocates nothing once b has been filled
// and the epoch's order is there. In evaluation k is below Batches.
func (l *Loader) Batch(k int64, b *Batch) error {
	row, epoch, err := l.schedule.row(k)
	if err != nil {
		return err
	}
	world, rank := l.cfg.world(), l.cfg.Rank
	l.shape(b, (len(row)-rank+world-1)/world)
	b.Epoch = epoch
	for i := range b.Rows {
		b.Instances[i] = row[rank+i*world]
		if err := l.fill(b, i); err != nil {
			return err
		}
	}
	return nil
}

// shape gives the slices of b their lengths.
func (l *Loader) shape(b *Batch, rows int) {
	seq := l.cfg.SequenceLength
	b.Rows, b.Seq = rows, seq
	b.Tokens = sized(b.Tokens, rows*seq)
	b.Instances = sized(b.Instances, rows)
	b.LabelMask, b.InstanceMask = nilUnless(l.masked, b.LabelMask, rows*seq), nilUnless(l.cfg.Filter != nil, b.InstanceMask, rows)
	if !l.cfg.DocLengths {
		b.DocLens = nil
		return
	}
	if cap(b.DocLens) < rows {
		b.DocLens = append(b.DocLens[:cap(b.DocLens)], make([][]int32, rows-cap(b.DocLens))...)
	}
	b.DocLens = b.DocLens[:rows]
}

// nilUnless is s with length n, or nil where the batch has no such mask.
func nilUnless(want bool, s []bool, n int) []bool {
	if !want {
		return nil
	}
	return sized(s, n)
}

// fill reads one row: its pieces, padding after them, and what is derived.
func (l *Loader) fill(b *Batch, row int) error {
	seq := b.Seq
	tokens := b.Tokens[row*seq : (row+1)*seq]
	var mask []bool
	if l.masked {
		mask = b.LabelMask[row*seq : (row+1)*seq]
	}
	l.pieces = l.set.of(l.pieces[:0], int64(b.Instances[row]))
	at := 0
	for _, p := range l.pieces {
		n := at + int(p.length())
		if err := l.read(p, tokens[at:n], sub(mask, at, n)); err != nil {
			return err
		}
		at = n
	}
	for i := at; i < seq; i++ { // only kinds with padding, which have a mask and a pad id
		tokens[i] = int32(l.vocab.pad)
		mask[i] = false
	}
	if l.cfg.Filter != nil {
		b.InstanceMask[row] = l.cfg.Filter.Keep(tokens)
	}
	if l.cfg.DocLengths {
		b.DocLens[row] = DocumentLengths(b.DocLens[row][:0], tokens, int32(l.vocab.eos), int32(l.vocab.bos))
	}
	return nil
}

// sub is mask[lo:hi] for a mask that may be absent.
func sub(mask []bool, lo, hi int) []bool {
	if mask == nil {
		return nil
	}
	return mask[lo:hi]
}

// read fills one piece of a row. Files without a mask of their own predict every
// token, also where other files of the set have masks.
func (l *Loader) read(p piece, tokens []int32, mask []bool) error {
	f := &l.files[p.file]
	if err := l.reader.tokens(tokens, f, p.extent, l.vocab.natural); err != nil {
		return err
	}
	if mask == nil {
		return nil
	}
	if f.mask != "" {
		return l.reader.masks(mask, f, p.extent)
	}
	for i := range mask {
		mask[i] = true
	}
	return nil
}
