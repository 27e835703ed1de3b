package data

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/asteria-runtime/asteria/trainer-olmo/tokenizer"
)

// writeTokens writes a raw token file and returns its path.
func writeTokens(t testing.TB, w Width, ids ...uint32) string {
	t.Helper()
	var raw []byte
	for _, id := range ids {
		raw = w.append(raw, id)
	}
	return writeFile(t, t.TempDir(), "tokens.npy", string(raw))
}

func writeFile(t testing.TB, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// count is n ids 0, 1, 2, … modulo a vocabulary.
func count(n, vocab int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(i % vocab)
	}
	return ids
}

// small is a configuration over one file of ids below 200, in bytes.
func small(path string) Config {
	return Config{Paths: []string{path}, VocabSize: 200, SequenceLength: 4, BatchInstances: 2, Seed: 7}
}

func mustOpen(t testing.TB, cfg Config) *Loader {
	t.Helper()
	l, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func mustBatch(t testing.TB, l *Loader, k int64) *Batch {
	t.Helper()
	b := new(Batch)
	if err := l.Batch(k, b); err != nil {
		t.Fatal(err)
	}
	return b
}

// wantError fails unless err mentions every part.
func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one with %q", parts)
		return
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q lacks %q", err, p)
		}
	}
}

func intp(v int) *int { return &v }

// numbers is a tokenizer whose text is the ids in decimal, separated by spaces.
type numbers struct{ vocab, eos int }

func (n numbers) Encode(dst []uint32, text []byte) []uint32 {
	for _, f := range bytes.Fields(text) {
		id, err := strconv.ParseUint(string(f), 10, 32)
		if err != nil {
			panic(err)
		}
		dst = append(dst, uint32(id))
	}
	return dst
}
func (numbers) Decode(dst []byte, ids []uint32) ([]byte, error) { return dst, nil }
func (n numbers) VocabSize() int                                { return n.vocab }
func (n numbers) EOS() int                                      { return n.eos }
func (numbers) Pad() int                                        { return tokenizer.None }
func (numbers) Name() string                                    { return "numbers" }
func (n numbers) Hash() string                                  { return "numbers " + strconv.Itoa(n.vocab) }
func (n numbers) Clone() tokenizer.Tokenizer                    { return n }
