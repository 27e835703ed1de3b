package data

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/asteria-runtime/asteria/trainer-olmo/tokenizer"
)

// mustTokenize runs Tokenize with bytes and returns all ids.
func mustTokenize(t testing.TB, o TokenizeOptions) (TokenizeReport, []uint32) {
	t.Helper()
	if o.Tokenizer == nil {
		o.Tokenizer = tokenizer.Byte()
	}
	if o.Output == "" {
		o.Output = filepath.Join(t.TempDir(), "out")
	}
	report, err := Tokenize(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var ids []uint32
	for _, f := range report.Files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for i := range len(raw) / int(report.Width) {
			ids = append(ids, uint32(report.Width.value(raw, i)))
		}
	}
	return report, ids
}

// asText writes ids as text with | for EOS.
func asText(ids []uint32) string {
	var s strings.Builder
	for _, id := range ids {
		if id == tokenizer.ByteEOS {
			s.WriteByte('|')
			continue
		}
		s.WriteByte(byte(id))
	}
	return s.String()
}

func readList(t testing.TB, file string) string {
	t.Helper()
	f, err := os.Open(DocumentsPath(file))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zip, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(zip)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func gz(t testing.TB, text string) string {
	var b strings.Builder
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func zst(t testing.TB, text string) string {
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(w.EncodeAll([]byte(text), nil))
}

const threeLines = `{"id": "x1", "text": "one", "source": "s"}

{"text": "  two  ", "id": 7}
{"text": "", "id": null}
`

func TestTextBecomesTokensAndAList(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "in/b.txt", "second\n")
	writeFile(t, dir, "in/a/first.md", "first")
	writeFile(t, dir, "in/c.jsonl.gz", gz(t, threeLines))
	writeFile(t, dir, "in/d.json.zst", zst(t, threeLines))
	writeFile(t, dir, "in/.hidden.txt", "hidden")
	writeFile(t, dir, "in/image.png", "\x00")
	report, ids := mustTokenize(t, TokenizeOptions{Inputs: []string{filepath.Join(dir, "in")}, BaseDir: filepath.Join(dir, "in")})
	if got, want := asText(ids), "first|second\n|one|  two  |one|  two  |"; got != want {
		t.Errorf("tokens %q, want %q", got, want)
	}
	want := "0,6,a/first.md,a/first.md,1\n6,14,b.txt,b.txt,1\n14,18,x1,c.jsonl.gz,1\n18,26,7,c.jsonl.gz,3\n26,30,x1,d.json.zst,1\n30,38,7,d.json.zst,3\n"
	if diff := cmp.Diff(want, readList(t, report.Files[0])); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	if report.Documents != 6 || report.Empty != 2 || report.Tokens != 38 || report.Width != 2 || len(report.Files) != 1 {
		t.Errorf("report %+v", report)
	}
	meta, err := ReadMeta(report.Files[0])
	if err != nil || meta.Tokens != 38 || meta.Documents != 6 || meta.EOS != 256 || meta.MaxID != 256 || meta.Tokenizer != "byte" {
		t.Errorf("metadata %+v, %v", meta, err)
	}
}

func TestStripAndOtherKeys(t *testing.T) {
	path := writeFile(t, t.TempDir(), "a.jsonl", `{"body": "  one \n", "key": "k", "text": 3}`+"\n"+`{"body": " \t "}`)
	report, ids := mustTokenize(t, TokenizeOptions{Inputs: []string{path}, TextKey: "body", IDKey: "key", Strip: true, NoEOS: true})
	if asText(ids) != "one" || report.Empty != 1 {
		t.Errorf("%q, %+v", asText(ids), report)
	}
	if list := readList(t, report.Files[0]); !strings.HasPrefix(list, "0,3,k,") {
		t.Errorf("list %q", list)
	}
}

func TestFilesAreSplitAtDocuments(t *testing.T) {
	path := writeFile(t, t.TempDir(), "a.jsonl", `{"text":"aaa"}`+"\n"+`{"text":"bb"}`+"\n"+`{"text":"cccccccc"}`+"\n"+`{"text":"d"}`)
	report, ids := mustTokenize(t, TokenizeOptions{Inputs: []string{path}, MaxTokens: 7})
	if len(report.Files) != 3 || asText(ids) != "aaa|bb|cccccccc|d|" {
		t.Fatalf("%d files, %q", len(report.Files), asText(ids))
	}
	for i, want := range []int64{7, 9, 2} {
		if m, err := ReadMeta(report.Files[i]); err != nil || m.Tokens != want {
			t.Errorf("file %d: %+v, %v", i, m, err)
		}
	}
}

func TestThreadsChangeNothing(t *testing.T) {
	dir := t.TempDir()
	var lines strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&lines, "{\"text\": %q}\n", strings.Repeat("word ", i%200))
	}
	path := writeFile(t, dir, "a.jsonl", lines.String())
	var first []string
	for _, threads := range []int{1, 2, 5} {
		report, _ := mustTokenize(t, TokenizeOptions{Inputs: []string{path}, Threads: threads, MaxTokens: 400_000})
		var hashes []string
		for _, f := range report.Files {
			for _, name := range []string{f, DocumentsPath(f), MetaPath(f)} {
				raw, err := os.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				hashes = append(hashes, string(raw))
			}
		}
		if first == nil {
			first = hashes
		}
		if !cmp.Equal(first, hashes) || len(hashes) < 6 {
			t.Errorf("%d threads: other files", threads)
		}
	}
}

func TestTokenizeNamesWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	jsonl := func(text string) []string { return []string{writeFile(t, t.TempDir(), "bad.jsonl", text)} }
	cases := []struct {
		name string
		o    TokenizeOptions
		want string
	}{
		{"broken line", TokenizeOptions{Inputs: jsonl("{\"text\":\"a\"}\n\n{\"text\"")}, "bad.jsonl line 3: not a JSON object"},
		{"no text", TokenizeOptions{Inputs: jsonl(`{"content":"a","id":1}`)}, `line 1: no key "text"; its keys are ["content" "id"]`},
		{"text is a number", TokenizeOptions{Inputs: jsonl(`{"text":1}`)}, `line 1: key "text" is not a string`},
		{"text is null", TokenizeOptions{Inputs: jsonl(`{"text":null}`)}, `line 1: key "text" is not a string`},
		{"nothing", TokenizeOptions{Inputs: jsonl("\n")}, "no token in 1 files"},
		{"not gzip", TokenizeOptions{Inputs: []string{writeFile(t, dir, "a.txt.gz", "plain")}}, "a.txt.gz is no .gz file"},
		{"not zstd", TokenizeOptions{Inputs: []string{writeFile(t, dir, "a.txt.zst", "plain")}}, "a.txt.zst"},
		{"a token file", TokenizeOptions{Inputs: []string{writeFile(t, dir, "a.npy", "x")}}, "is a token file already"},
		{"missing", TokenizeOptions{Inputs: []string{filepath.Join(dir, "none.txt")}}, "none.txt"},
		{"an empty folder", TokenizeOptions{Inputs: []string{t.TempDir()}}, "holds no text file"},
		{"no input", TokenizeOptions{}, "no input"},
		{"no EOS", TokenizeOptions{Inputs: jsonl("{}"), Tokenizer: numbers{10, -1}}, "names no end-of-document token"},
		{"negative limit", TokenizeOptions{Inputs: jsonl("{}"), MaxTokens: -1}, "max tokens -1"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.o.Output = filepath.Join(t.TempDir(), "out")
			if c.o.Tokenizer == nil {
				c.o.Tokenizer = tokenizer.Byte()
			}
			_, err := Tokenize(t.Context(), c.o)
			wantError(t, err, c.want)
			if left, _ := os.ReadDir(c.o.Output); len(left) > 0 {
				t.Errorf("%s was left behind", left[0].Name())
			}
		})
	}
}

func TestIDsThatDoNotFitAreRefused(t *testing.T) {
	path := writeFile(t, t.TempDir(), "a.txt", "1 300")
	_, err := Tokenize(t.Context(), TokenizeOptions{Inputs: []string{path}, Output: t.TempDir(), Tokenizer: numbers{vocab: 200, eos: 0}})
	wantError(t, err, "id 300 of tokenizer numbers does not fit uint8")
}

func TestEarlierOutputIsKeptUnlessTold(t *testing.T) {
	dir := t.TempDir()
	o := TokenizeOptions{Inputs: []string{writeFile(t, dir, "a.txt", "abc")}, Output: filepath.Join(dir, "out"), Tokenizer: tokenizer.Byte(), MaxTokens: 1}
	o.Inputs = append(o.Inputs, o.Inputs[0])
	if r, _ := mustTokenize(t, o); len(r.Files) != 2 {
		t.Fatal("want two files")
	}
	_, err := Tokenize(t.Context(), o)
	wantError(t, err, "holds part-00000.npy already")
	o.Overwrite, o.Inputs = true, o.Inputs[:1]
	mustTokenize(t, o)
	names, _ := filepath.Glob(filepath.Join(o.Output, "*"))
	if len(names) != 3 {
		t.Errorf("after overwriting: %v", names)
	}
}

func TestAStoppedRunLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	path := writeFile(t, dir, "a.txt", "abc")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Tokenize(ctx, TokenizeOptions{Inputs: []string{path}, Output: filepath.Join(dir, "out"), Tokenizer: tokenizer.Byte()})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if left, _ := os.ReadDir(filepath.Join(dir, "out")); len(left) > 0 {
		t.Errorf("%s was left behind", left[0].Name())
	}
}

func TestTextPathsAreTokenizedOnce(t *testing.T) {
	dir := t.TempDir()
	path := writeFile(t, dir, "shakespeare.txt", strings.Repeat("to be or not ", 20))
	cfg := Config{Paths: []string{path}, SequenceLength: 8, BatchInstances: 2, CacheFolder: filepath.Join(dir, "cache"), HeldOut: 0.1}
	first := mustOpen(t, cfg)
	if first.VocabSize() != 258 || first.EOS() != 256 || first.Tokenizer().Name() != "byte" {
		t.Errorf("vocabulary %d, EOS %d", first.VocabSize(), first.EOS())
	}
	stat := func() os.FileInfo {
		info, err := os.Stat(first.Files()[0])
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	before := stat()
	again := mustOpen(t, cfg)
	if !os.SameFile(before, stat()) || again.Fingerprint() != first.Fingerprint() {
		t.Error("the cache was not used")
	}
	writeFile(t, dir, "shakespeare.txt", strings.Repeat("to be or nut ", 20))
	if changed := mustOpen(t, cfg); changed.Files()[0] == first.Files()[0] || changed.Fingerprint() == first.Fingerprint() {
		t.Error("a changed text gave the old tokens")
	}
}

// goTree makes a small Go tree.
func goTree(t testing.TB) string {
	t.Helper()
	root := t.TempDir()
	for i := range 40 {
		writeFile(t, root, fmt.Sprintf("src/fmt/f%02d.go", i), fmt.Sprintf("package fmt // %d\n", i))
	}
	writeFile(t, root, "src/fmt/readme.txt", "no Go")
	return root
}

func TestCorpusIsShuffledByFileAndSplit(t *testing.T) {
	cfg := Config{Corpus: CorpusGoRoot, GoRoot: goTree(t), CacheFolder: t.TempDir(), SequenceLength: 1, BatchInstances: 1, MaxBytes: 600, HeldOut: 0.05}
	l := mustOpen(t, cfg)
	held, err := OpenHeldOut(cfg, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	list := readList(t, l.Files()[0])
	docs := strings.Split(strings.TrimSpace(list), "\n")
	if len(docs) < 25 || len(docs) > 35 || strings.Contains(list, "readme") {
		t.Errorf("%d documents:\n%s", len(docs), list)
	}
	if strings.HasSuffix(docs[0], "fmt/f00.go,1") && strings.HasSuffix(docs[1], "fmt/f01.go,1") {
		t.Error("the files are not shuffled")
	}
	if n, want := l.Instances()+held.Instances(), l.files[0].tokens; n != want || held.Instances() < 20 {
		t.Errorf("%d + %d instances of %d tokens", l.Instances(), held.Instances(), want)
	}
	b := new(Batch)
	if err := held.Batch(0, b); err != nil || b.Tokens[0] != 'p' {
		t.Errorf("the held-out part begins with %v, %v; want the start of a file", b.Tokens, err)
	}
	if again := mustOpen(t, cfg); again.Fingerprint() != l.Fingerprint() {
		t.Error("another fingerprint the second time")
	}
}

func TestCorpusFaultsAreExplained(t *testing.T) {
	cfg := Config{Corpus: CorpusGoRoot, GoRoot: t.TempDir(), CacheFolder: t.TempDir(), SequenceLength: 1, BatchInstances: 1}
	_, err := Open(cfg)
	wantError(t, err, cfg.GoRoot, "not the root of a Go tree")
	cfg.GoRoot, cfg.MaxBytes = goTree(t), 3
	_, err = Open(cfg)
	wantError(t, err, "no Go source", "data.max_bytes = 3")
	t.Setenv("PATH", t.TempDir())
	cfg.GoRoot = ""
	_, err = Open(cfg)
	wantError(t, err, "there is no go command", "data.paths")
}

func TestCorpusOfTheInstalledToolchain(t *testing.T) {
	if testing.Short() {
		t.Skip("reads 5 MB of Go sources")
	}
	cfg := Config{Corpus: CorpusGoRoot, CacheFolder: t.TempDir(), SequenceLength: 128, BatchInstances: 32, MaxBytes: 5_000_000}
	l, err := Open(cfg)
	if err != nil && strings.Contains(err.Error(), "no go command") {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if l.Tokens() < 4_000_000 || len(l.Warnings()) > 0 {
		t.Errorf("%d tokens, warnings %q", l.Tokens(), l.Warnings())
	}
}
