package data

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/asteria-runtime/asteria/trainer-olmo/tokenizer"
)

// Note: who decides what. Width: data.dtype, else the file's metadata, else the
// smallest that holds the vocabulary. Vocabulary and special ids: the tokenizer,
// else the first metadata, else the model's size and no special ids; a configured
// id goes before all of them. Wherever two of these speak about the same thing
// they must agree, and the error names both: ids that mean something else are the
// commonest fault of training data, and the one that no later check finds.

// vocabulary is what the ids mean: sizes and special ids, −1 where none.
type vocabulary struct {
	size          int // ids that the model knows
	natural       int // ids of the vocabulary that the data was written with; ids are below it
	eos, pad, bos int
	name, hash    string // of the tokenizer, "" when unknown
	file          string // the token file whose metadata gave all this, or ""
}

// source is a data set ready to be read.
type source struct {
	files []tokenFile
	vocab vocabulary
	tok   tokenizer.Tokenizer // nil when the configuration names none
}

// openSource finds the token files of a configuration, makes them first where
// it names text, and checks them against each other and the vocabulary.
func openSource(cfg Config, r *reader) (*source, error) {
	tok, err := cfg.openTokenizer()
	if err != nil {
		return nil, err
	}
	paths, err := cfg.tokenPaths(tok)
	if err != nil {
		return nil, err
	}
	paths, masks, err := cfg.permute(paths)
	if err != nil {
		return nil, err
	}
	metas := make([]*Meta, len(paths))
	for i, p := range paths {
		if metas[i], err = ReadMeta(p); err != nil {
			return nil, err
		}
	}
	v, err := cfg.vocabulary(tok, metas)
	if err != nil {
		return nil, err
	}
	if v.name != "" {
		r.whose = fmt.Sprintf(" (the ids of tokenizer %s)", v.name)
	}
	s := &source{vocab: v, tok: tok}
	for i, p := range paths {
		f, err := cfg.tokenFile(p, masks[i], metas[i], v)
		if err != nil {
			return nil, err
		}
		if err := r.refuseHeader(&f); err != nil {
			return nil, err
		}
		s.files = append(s.files, f)
	}
	return s, nil
}

// openTokenizer opens what Tokenizer names; text and corpora need one.
func (c Config) openTokenizer() (tokenizer.Tokenizer, error) {
	name := c.Tokenizer
	if c.Corpus != "" && name != "" && name != tokenizer.ByteName {
		return nil, fmt.Errorf("data: data.tokenizer = %q, allowed with data.corpus: byte", name)
	}
	if name == "" && (c.Corpus != "" || c.isText()) {
		name = tokenizer.ByteName
	}
	if name == "" {
		return nil, nil
	}
	tok, err := tokenizer.Open(name)
	if err != nil {
		return nil, fmt.Errorf("data: data.tokenizer: %w", err)
	}
	return tok, nil
}

// isText reports whether any path names text; tokenPaths refuses mixtures.
func (c Config) isText() bool { return slices.ContainsFunc(c.Paths, IsText) }

// tokenPaths returns the token files in the order of their instances.
func (c Config) tokenPaths(tok tokenizer.Tokenizer) ([]string, error) {
	if c.Corpus != "" {
		return c.goRootTokens()
	}
	paths, err := c.listed()
	if err != nil {
		return nil, err
	}
	texts := 0
	for _, p := range paths {
		if IsText(p) {
			texts++
		}
	}
	switch {
	case texts == 0:
		return expandFolders(paths)
	case texts < len(paths):
		return nil, fmt.Errorf("data: data.paths mixes %d text files with %d token files; tokenize the text first", texts, len(paths)-texts)
	case len(c.LabelMaskPaths) > 0:
		return nil, errors.New("data: data.label_mask_paths needs token files, data.paths names text")
	}
	return c.textTokens(paths, tok)
}

// listed is Paths with patterns expanded, or Datasets by sorted label.
func (c Config) listed() ([]string, error) {
	if len(c.Datasets) > 0 {
		var paths []string
		for _, label := range sortedKeys(c.Datasets) {
			paths = append(paths, c.Datasets[label]...)
		}
		return paths, nil
	}
	if !c.ExpandGlob {
		return c.Paths, nil
	}
	var paths []string
	for _, pattern := range c.Paths {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			return nil, fmt.Errorf("data: data.paths: pattern %q names no file", pattern)
		}
		slices.Sort(found)
		paths = append(paths, found...)
	}
	return paths, nil
}

// sortedKeys gives a map an order that does not change between runs.
func sortedKeys(m map[string][]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// expandFolders replaces a folder by its token files, sorted: what Tokenize
// wrote can be named as a whole.
func expandFolders(paths []string) ([]string, error) {
	var out []string
	for _, p := range paths {
		info, err := os.Stat(p)
		if err != nil {
			return nil, fmt.Errorf("data: data.paths: %w", err)
		}
		if !info.IsDir() {
			out = append(out, p)
			continue
		}
		found, err := filepath.Glob(filepath.Join(p, "*.npy"))
		if err != nil || len(found) == 0 {
			return nil, fmt.Errorf("data: data.paths: folder %s holds no token file (*.npy)", p)
		}
		out = append(out, found...)
	}
	return out, nil
}

// permute orders the files as SourcePermutationSeed says, masks alongside.
func (c Config) permute(paths []string) (files, masks []string, err error) {
	masks = make([]string, len(paths))
	if n := len(c.LabelMaskPaths); n > 0 && n != len(paths) {
		return nil, nil, fmt.Errorf("data: %d data.label_mask_paths for %d token files", n, len(paths))
	}
	copy(masks, c.LabelMaskPaths)
	if c.SourcePermutationSeed == nil {
		return paths, masks, nil
	}
	files = make([]string, len(paths))
	ordered := make([]string, len(paths))
	for i, from := range PythonOrder(len(paths), *c.SourcePermutationSeed) {
		files[i], ordered[i] = paths[from], masks[from]
	}
	return files, ordered, nil
}

// vocabulary merges what the configuration, the tokenizer and the files'
// metadata say, in this order, and refuses contradictions.
func (c Config) vocabulary(tok tokenizer.Tokenizer, metas []*Meta) (vocabulary, error) {
	v := vocabulary{size: c.VocabSize, eos: -1, pad: -1, bos: -1}
	if tok != nil {
		v.name, v.hash, v.eos, v.pad, v.natural = tok.Name(), tok.Hash(), tok.EOS(), tok.Pad(), tok.VocabSize()
	} else if m := firstMeta(metas); m != nil {
		v.file = m.file
		v.name, v.hash, v.eos, v.pad, v.natural = m.Tokenizer, m.TokenHash, m.EOS, m.Pad, m.VocabSize
	}
	v.size = orDefault(v.size, v.natural)
	v.natural = orDefault(v.natural, v.size)
	if v.size == 0 {
		return v, errors.New("data: the size of the vocabulary is not known: set data.tokenizer or model.vocab_size")
	}
	if v.size < 1 || int64(v.size) > 1<<31-1 {
		return v, fmt.Errorf("data: a vocabulary of %d, allowed 1 to %d", v.size, 1<<31-1)
	}
	if m := firstMeta(metas); tok == nil && m != nil {
		v.natural = min(v.natural, v.size) // the metadata's largest id decides; see Meta.check
	}
	if tok != nil && v.natural > v.size {
		return v, fmt.Errorf("data: tokenizer %s has ids up to %d, model.vocab_size = %d; allowed %d and more", v.name, v.natural-1, v.size, v.natural)
	}
	return v, c.specialIDs(&v, tok)
}

// firstMeta is the first metadata there is; all others are checked against what
// follows from it.
func firstMeta(metas []*Meta) *Meta {
	for _, m := range metas {
		if m != nil {
			return m
		}
	}
	return nil
}

// specialIDs applies the configured ids.
func (c Config) specialIDs(v *vocabulary, tok tokenizer.Tokenizer) error {
	var errs []error
	if c.EOS != nil && tok != nil {
		errs = append(errs, tokenizer.CheckEOS(v.name, v.eos, *c.EOS))
	}
	for _, x := range []struct {
		key string
		set *int
		id  *int
	}{{"eos_token_id", c.EOS, &v.eos}, {"pad_token_id", c.Pad, &v.pad}, {"bos_token_id", c.BOS, &v.bos}} {
		from := ""
		if x.set != nil {
			*x.id = *x.set
		} else if v.file != "" {
			from = fmt.Sprintf(" (from %s)", filepath.Base(v.file))
		}
		if x.set != nil && *x.id < 0 || *x.id >= v.size {
			errs = append(errs, fmt.Errorf("data: data.%s = %d%s, allowed 0 to %d", x.key, *x.id, from, v.size-1))
		}
	}
	if c.DocLengths && v.eos < 0 {
		errs = append(errs, errors.New("data: data.generate_doc_lengths needs data.eos_token_id or a tokenizer with one"))
	}
	return errors.Join(errs...)
}

// width decides the width of one file: the configuration's, the metadata's, or
// the smallest for the vocabulary. One that cannot hold the vocabulary that the
// file was written with is refused, since its ids have wrapped.
func (c Config) width(path string, m *Meta, v vocabulary) (Width, error) {
	if c.DType == "" || c.DType == "auto" {
		if m != nil {
			return widthOf(m.DType)
		}
		return WidthFor(v.natural), nil
	}
	natural := v.natural
	w, err := widthOf(c.DType)
	if err != nil {
		return 0, err
	}
	if m != nil {
		natural = m.VocabSize
	}
	if int64(natural)-1 > w.MaxID() {
		return 0, fmt.Errorf("data: %s: %s holds ids up to %d, the vocabulary has %d ids; allowed %s and wider (narrower ids have wrapped silently)",
			path, w, w.MaxID(), natural, WidthFor(natural))
	}
	return w, nil
}

// tokenFile puts together and checks what is known of one file before it is read.
func (c Config) tokenFile(path, mask string, m *Meta, v vocabulary) (tokenFile, error) {
	w, err := c.width(path, m, v)
	if err != nil {
		return tokenFile{}, err
	}
	if m != nil {
		size, err := fileSize(path)
		if err != nil {
			return tokenFile{}, err
		}
		if err := m.check(path, size, w, v); err != nil {
			return tokenFile{}, err
		}
	}
	n, err := statTokens(path, w)
	if err != nil {
		return tokenFile{}, err
	}
	f := tokenFile{path: path, mask: mask, width: w, tokens: n, meta: m, part: extent{0, n}}
	return f, f.checkMask()
}

// checkMask compares the sizes of a file and its mask.
func (f *tokenFile) checkMask() error {
	if f.mask == "" {
		return nil
	}
	size, err := fileSize(f.mask)
	if err == nil && size != f.tokens {
		err = fmt.Errorf("data: %s has %d bytes for the %d tokens of %s; allowed one byte a token", f.mask, size, f.tokens, f.path)
	}
	return err
}

// IsText reports whether a path names text to be tokenized rather than ids: by
// its ending .txt, .text, .md, .json, .jsonl or .ndjson, with or without .gz or
// .zst after it.
func IsText(path string) bool {
	_, kind := splitName(path)
	return kind != unknownText
}

// textKind is how a file holds documents.
type textKind int

// The kinds of text files.
const (
	unknownText textKind = iota
	plainText            // one document
	jsonLines            // one JSON object a line
)

// splitName returns the compression ("", ".gz", ".zst") and the kind of a file.
func splitName(path string) (compression string, kind textKind) {
	name := strings.ToLower(path)
	for _, c := range []string{".gz", ".zst"} {
		if rest, ok := strings.CutSuffix(name, c); ok {
			compression, name = c, rest
			break
		}
	}
	switch filepath.Ext(name) {
	case ".txt", ".text", ".md":
		return compression, plainText
	case ".json", ".jsonl", ".ndjson":
		return compression, jsonLines
	}
	return compression, unknownText
}
