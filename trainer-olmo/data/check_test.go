package data

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestA30_WidthFollowsTheVocabulary: ids above 65535 survive writing and
// reading; a width or a vocabulary that does not fit is refused before the first
// batch.
func TestA30_WidthFollowsTheVocabulary(t *testing.T) {
	tok := numbers{vocab: 119547, eos: 1}
	dir := t.TempDir()
	text := writeFile(t, dir, "ids.txt", "0 65535 65536 119546")
	report, err := Tokenize(t.Context(), TokenizeOptions{Inputs: []string{text}, Output: filepath.Join(dir, "out"), Tokenizer: tok})
	if err != nil || report.Width != 4 {
		t.Fatalf("width %s, %v", report.Width, err)
	}
	file := report.Files[0]
	meta, err := ReadMeta(file)
	if err != nil || meta.DType != "uint32" || meta.VocabSize != 119547 || meta.MaxID != 119546 {
		t.Fatalf("metadata %+v, %v", meta, err)
	}
	cfg := Config{Paths: []string{file}, VocabSize: 119552, SequenceLength: 5, BatchInstances: 1}
	want := []int32{0, 65535, 65536, 119546, 1}
	if got := mustBatch(t, mustOpen(t, cfg), 0).Tokens; !cmp.Equal(want, got) {
		t.Errorf("read %v, want %v", got, want)
	}
	t.Run("a model with fewer ids is refused", func(t *testing.T) {
		small := cfg
		small.VocabSize = 65536
		_, err := Open(small)
		wantError(t, err, file, "119546", "65536")
	})
	t.Run("a width against the metadata is refused", func(t *testing.T) {
		narrow := cfg
		narrow.DType = "uint16"
		_, err := Open(narrow)
		wantError(t, err, file, "uint16", "uint32")
	})
	t.Run("without metadata", func(t *testing.T) { withoutMetadata(t, file, cfg) })
}

func withoutMetadata(t *testing.T, file string, cfg Config) {
	if err := os.Remove(MetaPath(file)); err != nil {
		t.Fatal(err)
	}
	if got := mustBatch(t, mustOpen(t, cfg), 0).Tokens; got[3] != 119546 {
		t.Errorf("read %v", got)
	}
	narrow := cfg
	narrow.DType = "uint16"
	_, err := Open(narrow)
	wantError(t, err, file, "uint16 holds ids up to 65535", "119552", "allowed uint32")
	few := cfg
	few.VocabSize, few.DType = 100000, "uint32"
	_, err = Open(few)
	wantError(t, err, file, "token 3 (byte 12) is 119546, allowed 0 to 99999")
	few.Check = CheckNone
	wantError(t, mustOpen(t, few).Batch(0, new(Batch)), "token 3 (byte 12) is 119546")
}

func TestWrongWidthsAreFound(t *testing.T) {
	ids := make([]uint32, 200)
	for i := range ids {
		ids[i] = uint32(10 + i)
	}
	wide := writeTokens(t, 4, ids...)
	cfg := small(wide)
	cfg.VocabSize, cfg.DType = 60000, "uint16"
	_, err := Open(cfg)
	wantError(t, err, wide, "look like ids of uint32, read as uint16", "data.dtype")

	narrow := writeTokens(t, 2, ids...)
	cfg = small(narrow)
	cfg.VocabSize, cfg.DType = 60000, "uint32"
	_, err = Open(cfg)
	wantError(t, err, narrow, "token 0 (byte 0) is", "allowed 0 to 59999")

	odd := writeFile(t, t.TempDir(), "odd.npy", "12345")
	cfg = small(odd)
	cfg.VocabSize = 60000
	_, err = Open(cfg)
	wantError(t, err, odd, "5 bytes", "2 of one uint16 id")
}

// A configuration's default tokenizer is byte; token files of another one are
// found by their ids.
func TestIDsAboveTheTokenizersAreRefused(t *testing.T) {
	cfg := small(writeTokens(t, 2, count(400, 300)...))
	cfg.Tokenizer, cfg.VocabSize = "byte", 50304
	_, err := Open(cfg)
	wantError(t, err, "token 258 (byte 516) is 258, allowed 0 to 257 (the ids of tokenizer byte)")
}

func TestHugeWideIDsAreRefused(t *testing.T) {
	raw := strings.Repeat("\xff", 8) + strings.Repeat("\x00", 24)
	cfg := small(writeFile(t, t.TempDir(), "wide.npy", raw))
	cfg.DType, cfg.BatchInstances = "uint64", 1
	_, err := Open(cfg)
	wantError(t, err, "token 0 (byte 0) is 18446744073709551615")
}

func TestDecodeFindsTheFirstIDOutOfRange(t *testing.T) {
	for _, w := range []Width{1, 2, 4, 8} {
		for bad := range 20 {
			var raw []byte
			for i := range 20 {
				id := uint32(i)
				if i >= bad {
					id = 100 + uint32(i)
				}
				raw = w.append(raw, id)
			}
			dst := make([]int32, 20)
			if got := w.decode(dst, raw, 100); got != bad {
				t.Errorf("%s: found %d, want %d", w, got, bad)
			}
			if got := w.decode(dst, raw, 120); got != -1 || dst[19] < 19 {
				t.Errorf("%s: found %d in a valid file", w, got)
			}
		}
	}
}

func TestWidthForTheVocabulary(t *testing.T) {
	for vocab, want := range map[int]Width{1: 1, 256: 1, 257: 2, 50280: 2, 65536: 2, 65537: 4, 100278: 4} {
		if got := WidthFor(vocab); got != want {
			t.Errorf("vocabulary of %d: %s, want %s", vocab, got, want)
		}
	}
}

func TestNumpyHeadersAreNamed(t *testing.T) {
	path := writeFile(t, t.TempDir(), "real.npy", npyMagic+"\x01\x00v\x00{'descr': '<u2'")
	_, err := Open(small(path))
	wantError(t, err, path, "numpy header")
}

func TestSmallDataSetsAreRefusedWithTheArithmetic(t *testing.T) {
	cfg := small(writeTokens(t, 1, count(15, 200)...))
	cfg.BatchInstances = 4
	_, err := Open(cfg)
	wantError(t, err, "1 files with 15 tokens give 3 instances of 4 tokens", "fewer than the 4 of one global batch", "train.global_batch_size")
	cfg.SequenceLength = 16
	_, err = Open(cfg)
	wantError(t, err, "give 0 instances of 16 tokens", "data.sequence_length")
	cfg = small(writeFile(t, t.TempDir(), "empty.npy", ""))
	_, err = Open(cfg)
	wantError(t, err, "0 tokens give 0 instances")
}

func TestEOSTrapIsExplained(t *testing.T) {
	ids := count(100, 40)
	ids[50] = 50279
	for i := range ids {
		if ids[i] == 0 {
			ids[i] = 41
		}
	}
	cfg := small(writeTokens(t, 2, ids...))
	cfg.VocabSize, cfg.EOS = 50280, intp(0)
	l := mustOpen(t, cfg)
	if w := l.Warnings(); len(w) != 1 || !strings.Contains(w[0], "eos_token_id 0 is not among 100 tokens, but 50279 is, 1 times") {
		t.Errorf("warnings %q", w)
	}
	cfg.EOS = intp(77)
	if w := mustOpen(t, cfg).Warnings(); len(w) != 1 || !strings.Contains(w[0], "another OLMo tokenizer") {
		t.Errorf("warnings %q", w)
	}
	cfg.Kind, cfg.Pad = KindPadded, intp(1)
	_, err := Open(cfg)
	wantError(t, err, "no document in 100 tokens: eos_token_id 77 does not occur")
}

func TestMetadataIsChecked(t *testing.T) {
	dir := t.TempDir()
	report, err := Tokenize(t.Context(), TokenizeOptions{Inputs: []string{writeFile(t, dir, "a.txt", "1 2 3 4 5 6 7 8")}, Output: filepath.Join(dir, "out"), Tokenizer: numbers{100, 0}})
	if err != nil {
		t.Fatal(err)
	}
	file := report.Files[0]
	good, err := ReadMeta(file)
	if err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name string
		edit func(*Meta, *Config)
		want []string
	}{
		{"cut file", func(m *Meta, _ *Config) { m.Tokens = 10 }, []string{"has 9 bytes", "10 tokens of uint8 = 10 bytes", "cut or replaced"}},
		{"other format", func(m *Meta, _ *Config) { m.Format = "x" }, []string{`format "x"`}},
		{"other version", func(m *Meta, _ *Config) { m.Version = 9 }, []string{"version 9, allowed 1"}},
		{"unknown width", func(m *Meta, _ *Config) { m.DType = "float32" }, []string{`dtype "float32"`}},
		{"vocabulary above the width", func(m *Meta, _ *Config) { m.VocabSize = 300 }, []string{"vocab_size 300 does not fit uint8"}},
		{"largest id", func(m *Meta, _ *Config) { m.MaxID = 100 }, []string{"max_id 100"}},
		{"EOS outside", func(m *Meta, _ *Config) { m.EOS = 100 }, []string{"eos_token_id 100"}},
		{"another EOS", func(_ *Meta, c *Config) { c.EOS = intp(5) }, []string{"ends documents with id 0", "eos_token_id is 5"}},
		{"a smaller model", func(_ *Meta, c *Config) { c.VocabSize = 8 }, []string{"holds id 8 by its metadata", "vocabulary of 8"}},
		{"another tokenizer", func(_ *Meta, c *Config) { c.Tokenizer = "byte"; c.VocabSize = 300 }, []string{"was written with tokenizer numbers", "data.tokenizer is byte"}},
		{"pad outside the model", func(m *Meta, c *Config) { m.Pad, c.VocabSize = 99, 20 }, []string{"pad_token_id = 99 (from part-00000.npy), allowed 0 to 19"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m, cfg := *good, Config{Paths: []string{file}, SequenceLength: 2, BatchInstances: 1}
			c.edit(&m, &cfg)
			raw, err := json.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(MetaPath(file), raw, 0o666); err != nil {
				t.Fatal(err)
			}
			_, err = Open(cfg)
			wantError(t, err, append(c.want, "part-00000")...)
		})
	}
}

func TestConfigFaultsAreAllReported(t *testing.T) {
	bad := Config{Corpus: "wiki", Paths: []string{"a"}, DType: "int8", Check: "some", HeldOut: 1, HeldOutTokens: -1,
		Kind: "vsl", LongDocStrategy: "keep", MaxTargetSequenceLength: 7, SequenceLength: 4, SourceGroupSize: -1,
		Order: "random", Seed: -1, KeepLast: true, Rank: 3, WorldSize: 2, BatchInstances: 3, LabelMaskPaths: []string{"m"}}
	wantError(t, bad.Validate(), "exactly one of data.corpus, data.paths and data.datasets", `data.corpus = "wiki"`, `data.dtype = "int8"`,
		`data.check = "some"`, "data.held_out = 1", "data.held_out_tokens = -1", `data.kind = "vsl"`, `data.long_doc_strategy = "keep"`,
		"data.max_target_sequence_length = 7", "data.source_group_size = -1", `data.order = "random"`, "data.seed = -1", "data.keep_last",
		"rank 3 of 2", "3 instances is not a multiple of 2 ranks", "data.label_mask_paths")
	wantError(t, Config{Paths: []string{"a"}, Kind: KindPacked, SequenceLength: 6, BatchInstances: 1}.Validate(), "powers of two")
	wantError(t, Config{Paths: []string{"a"}}.Validate(), "data.sequence_length = 0", "a global batch of 0 instances")
	if err := (Config{Corpus: CorpusGoRoot, SequenceLength: 4, BatchInstances: 1}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestSourcesThatDoNotFitAreNamed(t *testing.T) {
	npy := writeTokens(t, 1, count(40, 200)...)
	txt := writeFile(t, t.TempDir(), "a.txt", "text")
	cases := []struct {
		name string
		edit func(*Config)
		want string
	}{
		{"text and ids", func(c *Config) { c.Paths = []string{npy, txt} }, "mixes 1 text files with 1 token files"},
		{"masks for text", func(c *Config) { c.Paths, c.LabelMaskPaths = []string{txt}, []string{npy}; c.VocabSize = 0 }, "data.label_mask_paths needs token files"},
		{"too few masks", func(c *Config) { c.Paths, c.LabelMaskPaths = []string{npy, npy}, []string{npy} }, "1 data.label_mask_paths for 2 token files"},
		{"no vocabulary", func(c *Config) { c.VocabSize = 0 }, "the size of the vocabulary is not known"},
		{"a model below the tokenizer", func(c *Config) { c.Tokenizer = "byte" }, "tokenizer byte has ids up to 257, model.vocab_size = 200"},
		{"EOS against the tokenizer", func(c *Config) { c.Tokenizer, c.VocabSize, c.EOS = "byte", 300, intp(0) }, "eos_token_id = 0, but tokenizer byte has 256"},
		{"EOS outside", func(c *Config) { c.EOS = intp(200) }, "data.eos_token_id = 200, allowed 0 to 199"},
		{"lengths without EOS", func(c *Config) { c.DocLengths = true }, "data.generate_doc_lengths needs"},
		{"padded without pad", func(c *Config) { c.Kind, c.EOS = KindPadded, intp(0) }, "data.kind padded needs data.pad_token_id"},
		{"packed without EOS", func(c *Config) { c.Kind = KindPacked }, "data.kind packed needs data.eos_token_id"},
		{"missing file", func(c *Config) { c.Paths = []string{"nowhere.npy"} }, "nowhere.npy"},
		{"missing tokenizer", func(c *Config) { c.Tokenizer = "nowhere.json" }, "data.tokenizer"},
		{"a corpus with BPE", func(c *Config) { c.Paths, c.Corpus, c.Tokenizer = nil, CorpusGoRoot, "x.json" }, "allowed with data.corpus: byte"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			cfg := small(npy)
			cfg.CacheFolder = t.TempDir()
			c.edit(&cfg)
			_, err := Open(cfg)
			wantError(t, err, c.want)
		})
	}
}
