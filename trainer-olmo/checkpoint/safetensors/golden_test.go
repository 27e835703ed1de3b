package safetensors

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/trainer-olmo/model"
)

func goldenDir() string {
	if dir := os.Getenv("ASTERIA_GOLDEN_OLMO"); dir != "" {
		return dir
	}
	return filepath.Join("testdata", "golden")
}

// expectation is what EXPECTED.txt says: a golden file relative to the folder,
// and the tolerance of its logits.
type expectation struct {
	file string
	tol  float64
}

var (
	expectedFile = regexp.MustCompile(`see (\S+\.json)`)
	expectedTol  = regexp.MustCompile(`abs tol ([0-9.eE+-]+)`)
)

func readExpectation(t *testing.T, dir string) expectation {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "EXPECTED.txt"))
	if err != nil {
		t.Fatal(err)
	}
	file, tol := expectedFile.FindSubmatch(text), expectedTol.FindSubmatch(text)
	if file == nil || tol == nil {
		t.Fatalf("%s: cannot read EXPECTED.txt %q", dir, text)
	}
	x, err := strconv.ParseFloat(string(tol[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return expectation{filepath.Join(dir, filepath.FromSlash(string(file[1]))), x}
}

// TestGoldenImport imports every model folder under fixtures and compares its
// logits with those of the golden file that EXPECTED.txt names.
func TestGoldenImport(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(goldenDir(), "*.json"))
	if len(files) == 0 {
		t.Fatalf("no golden file in %s", goldenDir())
	}
	dirs, _ := filepath.Glob(filepath.Join(goldenDir(), "fixtures", "*", configFile))
	if len(dirs) == 0 {
		t.Skipf("no fixtures in %s", goldenDir())
	}
	for _, config := range dirs {
		dir := filepath.Dir(config)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			checkImport[float64](t, dir)
			checkImport[float32](t, dir)
		})
	}
}

func checkImport[T gemm.Float](t *testing.T, dir string) {
	t.Helper()
	want := readExpectation(t, dir)
	data, err := os.ReadFile(want.file)
	if errors.Is(err, os.ErrNotExist) {
		t.Skipf("EXPECTED.txt names %s, which is not there", want.file)
	}
	if err != nil {
		t.Fatal(err)
	}
	var g struct {
		InputIDs [][]int32 `json:"input_ids"`
		DocLens  [][]int32 `json:"doc_lens"`
		Expected struct {
			Logits [][][]float64 `json:"logits"`
		} `json:"expected"`
	}
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	eng := gemm.New(1)
	defer eng.Close()
	m, err := Import[T](dir, eng)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	b := model.Batch{Rows: len(g.InputIDs), Seq: len(g.InputIDs[0]), DocLens: g.DocLens}
	for _, row := range g.InputIDs {
		b.Tokens = append(b.Tokens, row...)
	}
	vocab := m.Config().VocabSize
	logits := make([]T, len(b.Tokens)*vocab)
	if err := m.Logits(b, logits); err != nil {
		t.Fatal(err)
	}
	for i, got := range logits {
		token := i / vocab
		w := g.Expected.Logits[token/b.Seq][token%b.Seq][i%vocab]
		if d := math.Abs(float64(got) - w); !(d <= want.tol) {
			t.Fatalf("%T logits[%d] = %v, want %v: off by %g", got, i, got, w, d)
		}
	}
}
