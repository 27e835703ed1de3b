package tokenizer

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// goldenFolder is testdata/golden, or the folder that replaces it. A folder that
// holds no golden file at all is a mistake in its name, and fails.
func goldenFolder(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("ASTERIA_GOLDEN_OLMO")
	if dir == "" {
		dir = filepath.Join("testdata", "golden")
	}
	if !holdsGolden(dir) {
		t.Fatalf("no golden file of any family in %s", dir)
	}
	return dir
}

// goldenFiles lists the files of one family.
func goldenFiles(t *testing.T, pattern string) []string {
	t.Helper()
	dir := goldenFolder(t)
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Skipf("%s holds no %s", dir, pattern)
	}
	return files
}

// officialFile returns the path of one of the official tokenizer files.
func officialFile(t testing.TB, name string) string {
	t.Helper()
	dir := os.Getenv("ASTERIA_DATA")
	if dir == "" {
		t.Skip("ASTERIA_DATA is not set: the official tokenizer files are not part of this repository")
	}
	path := filepath.Join(dir, "tokenizers", filepath.Base(name))
	if _, err := os.Stat(path); err != nil {
		t.Skipf("ASTERIA_DATA has no such tokenizer: %v", err)
	}
	return path
}

// goldenTokenizer is one tokenizer's part of a golden file.
type goldenTokenizer struct {
	File   string
	SHA256 string `json:"file_sha256"`
	EOS    int
	DType  string `json:"npy_dtype"`
	Cases  []struct {
		Text string
		IDs  []uint32
	}
}

func TestGoldenTokenizer(t *testing.T) {
	for _, file := range goldenFiles(t, "tokenizer*.json") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			var golden struct{ Tokenizers map[string]goldenTokenizer }
			readJSON(t, file, &golden)
			if len(golden.Tokenizers) == 0 {
				t.Fatal("no tokenizers in the file")
			}
			for name, g := range golden.Tokenizers {
				t.Run(name, func(t *testing.T) { checkGolden(t, g) })
			}
		})
	}
}

func checkGolden(t *testing.T, g goldenTokenizer) {
	tok, err := Load(officialFile(t, g.File))
	if err != nil {
		t.Fatal(err)
	}
	if g.SHA256 != "" && tok.Hash() != g.SHA256 {
		t.Errorf("hash %s, want %s", tok.Hash(), g.SHA256)
	}
	if tok.EOS() != g.EOS {
		t.Errorf("EOS %d, want %d", tok.EOS(), g.EOS)
	}
	for _, c := range g.Cases {
		got := tok.Encode([]uint32{}, []byte(c.Text))
		if diff := cmp.Diff(c.IDs, got); diff != "" {
			t.Errorf("Encode(%q) (-want +got):\n%s", c.Text, diff)
		}
		back, err := tok.Decode(nil, got)
		want := string(tok.normalForm([]byte(c.Text)))
		if err != nil || string(back) != want {
			t.Errorf("Decode gives %q, %v; want %q", back, err, want)
		}
	}
}

// normalForm is what decoding gives back: text after the normalizer.
func (t *BPE) normalForm(text []byte) []byte {
	if t.nfc != nil {
		return append([]byte(nil), t.normalize(text)...)
	}
	return text
}

// holdsGolden reports whether a folder has a file of any family of the set.
func holdsGolden(dir string) bool {
	for _, family := range []string{"param_counts*", "model_*", "op_*", "lr_*", "data_*", "tokenizer*", "optim*", "train_trajectory_*"} {
		if files, _ := filepath.Glob(filepath.Join(dir, family+".json")); len(files) > 0 {
			return true
		}
	}
	return false
}

func readJSON(t testing.TB, file string, v any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// The golden cases are short; a real text meets the rare merges, the cache and
// its evictions.
func TestOfficialRoundTripOfRealText(t *testing.T) {
	for _, name := range []string{"allenai_dolma2.json", "allenai_gpt-neox-olmo-dolma-v1_5.json"} {
		tok, err := Load(officialFile(t, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range realTexts(t) {
			ids := tok.Encode(nil, text)
			back, err := tok.Decode(nil, ids)
			if want := tok.normalForm(text); err != nil || sum(back) != sum(want) {
				t.Errorf("%s: decoding %d ids gives other bytes: %v", name, len(ids), err)
			}
		}
	}
}

func realTexts(t testing.TB) [][]byte {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(os.Getenv("ASTERIA_DATA"), "text", "*.txt"))
	if len(files) == 0 {
		t.Skip("ASTERIA_DATA has no text/*.txt")
	}
	var texts [][]byte
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, b)
	}
	return texts
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}
