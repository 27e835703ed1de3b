package data

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/asteria-runtime/asteria/trainer-olmo/tokenizer"
)

// randomFiles writes files of random lengths and returns their ids.
func randomFiles(t *testing.T, r *rand.Rand, w Width, files int) (paths []string, ids [][]uint32) {
	for range files {
		file := make([]uint32, 20+r.IntN(200))
		for i := range file {
			file[i] = r.Uint32N(200)
		}
		paths = append(paths, writeTokens(t, w, file...))
		ids = append(ids, file)
	}
	return paths, ids
}

// TestFixedInstancesAreSlicesOfTheirFiles holds every width, length and file
// layout against slices of the ids that were written.
func TestFixedInstancesAreSlicesOfTheirFiles(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 20))
		w := []Width{1, 2, 4, 8}[r.IntN(4)]
		paths, ids := randomFiles(t, r, w, 1+r.IntN(4))
		seq := 1 + r.IntN(15)
		cfg := Config{Paths: paths, DType: w.String(), VocabSize: 200, SequenceLength: seq, BatchInstances: 1, Seed: int64(seed)}
		var want [][]uint32
		for _, file := range ids {
			for at := 0; at+seq <= len(file); at += seq {
				want = append(want, file[at:at+seq])
			}
		}
		l := mustOpen(t, cfg)
		if int(l.Instances()) != len(want) {
			t.Fatalf("seed %d: %d instances, want %d", seed, l.Instances(), len(want))
		}
		for k := range l.Batches() {
			b := mustBatch(t, l, k)
			for i, id := range b.Tokens {
				if uint32(id) != want[b.Instances[0]][i] {
					t.Fatalf("seed %d, %s, instance %d: %v, want %v", seed, w, b.Instances[0], b.Tokens, want[b.Instances[0]])
				}
			}
		}
	}
}

// TestHeldOutSplitsAnyFiles: training and held-out part make up all tokens, none
// twice, and the held-out part is at least as long as asked for.
func TestHeldOutSplitsAnyFiles(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 21))
		paths, ids := randomFiles(t, r, 1, 1+r.IntN(4))
		all := slices.Concat(ids...)
		keep := int64(1 + r.IntN(len(all)-1))
		cfg := Config{Paths: paths, VocabSize: 200, SequenceLength: 1, BatchInstances: 1, HeldOutTokens: keep, EOS: intp(r.IntN(200)), Check: CheckNone}
		held, err := OpenHeldOut(cfg, 0)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		got := readAll(t, held)
		train, err := Open(cfg)
		if err == nil {
			got = append(readAll(t, train), got...)
			train.Close()
		} else if !strings.Contains(err.Error(), "0 instances") { // the cut may reach the very start
			t.Fatalf("seed %d: %v", seed, err)
		}
		if n := held.Instances(); n < keep || n > 2*keep {
			t.Errorf("seed %d: %d tokens held out, %d asked for", seed, n, keep)
		}
		held.Close()
		if !cmp.Equal(got, all) {
			t.Fatalf("seed %d: the parts do not make up the whole", seed)
		}
	}
}

// readAll gives the tokens in the order of the files.
func readAll(t *testing.T, l *Loader) []uint32 {
	t.Helper()
	tokens := make([]uint32, l.Instances())
	for k := range l.Batches() {
		b := mustBatch(t, l, k)
		tokens[b.Instances[0]] = uint32(b.Tokens[0])
	}
	return tokens
}

// TestTokenizedDocumentsReadBack: the list's extents of the token files are the
// documents, whatever the split into files and the number of threads.
func TestTokenizedDocumentsReadBack(t *testing.T) {
	for seed := range uint64(15) {
		r := rand.New(rand.NewPCG(seed, 22))
		var lines strings.Builder
		var want []string
		for i := range 1 + r.IntN(60) {
			text := strings.Repeat("ä x", r.IntN(30))
			fmt.Fprintf(&lines, "{\"id\":%d,\"text\":%q}\n", i, text)
			if text != "" {
				want = append(want, fmt.Sprintf("%d %s", i, text))
			}
		}
		if want == nil {
			continue
		}
		path := writeFile(t, t.TempDir(), "a.jsonl", lines.String())
		report, _ := mustTokenize(t, TokenizeOptions{Inputs: []string{path}, MaxTokens: r.Int64N(300), Threads: 1 + r.IntN(3)})
		if got := documentsIn(t, report); !cmp.Equal(want, got) {
			t.Fatalf("seed %d:\n%s", seed, cmp.Diff(want, got))
		}
	}
}

// documentsIn decodes all documents by the lists.
func documentsIn(t *testing.T, report TokenizeReport) []string {
	t.Helper()
	var docs []string
	for _, file := range report.Files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		w := report.Width
		f := tokenFile{path: file, width: w, tokens: int64(len(raw) / int(w))}
		err = readDocuments(&f, func(s Span) bool {
			var ids []uint32
			for i := s.DocStart; i < s.DocEnd; i++ {
				ids = append(ids, uint32(w.value(raw, int(i))))
			}
			if last := ids[len(ids)-1]; last != tokenizer.ByteEOS {
				t.Fatalf("document %d ends with %d", s.Document, last)
			}
			text, err := tokenizer.Byte().Decode(nil, ids)
			if err != nil {
				t.Fatal(err)
			}
			docs = append(docs, fmt.Sprintf("%s %s", s.ID, text))
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return docs
}

// naiveSpans cuts an extent token by token.
func naiveSpans(docs []extent, e extent) []string {
	docOf := func(at int64) int {
		return slices.IndexFunc(docs, func(d extent) bool { return d.start <= at && at < d.end })
	}
	var out []string
	for start := e.start; start < e.end; {
		end := start + 1
		for end < e.end && docOf(end) == docOf(start) {
			end++
		}
		out = append(out, fmt.Sprintf("%d-%d:%d", start, end, docOf(start)))
		start = end
	}
	return out
}

func TestCutterAgreesWithCuttingTokenByToken(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 23))
		var docs []extent
		at := int64(0)
		for range r.IntN(8) {
			at += r.Int64N(3) // a gap, mostly none
			n := r.Int64N(6)
			docs = append(docs, extent{at, at + n})
			at += n
		}
		var c cutter
		var want, got []string
		for start := int64(0); start < at+5; {
			n := 1 + r.Int64N(7)
			if r.IntN(3) > 0 {
				c.wanted = append(c.wanted, Span{Start: start, End: start + n, Document: -1})
				want = append(want, naiveSpans(docs, extent{start, start + n})...)
			}
			start += n
		}
		for i, d := range docs {
			if !c.add(Span{Document: int64(i), DocStart: d.start, DocEnd: d.end}) {
				break
			}
		}
		for _, s := range slices.Concat(c.spans, c.rest()) {
			got = append(got, fmt.Sprintf("%d-%d:%d", s.Start, s.End, s.Document))
		}
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d, documents %v (-want +got):\n%s", seed, docs, diff)
		}
	}
}

func TestDocumentLengthsAddUp(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 24))
		tokens := make([]int32, r.IntN(30))
		for i := range tokens {
			tokens[i] = r.Int32N(4)
		}
		bos := int32(-1)
		if seed%2 == 0 {
			bos = r.Int32N(4)
		}
		sum, at := int32(0), 0
		for _, n := range DocumentLengths(nil, tokens, 0, bos) {
			sum += n
			at += int(n)
			if n < 1 || at < len(tokens) && (tokens[at-1] != 0 || bos >= 0 && tokens[at] != bos) {
				t.Fatalf("seed %d: %v with BOS %d has a document that ends before %d", seed, tokens, bos, at)
			}
		}
		if int(sum) != len(tokens) {
			t.Fatalf("seed %d: lengths add up to %d of %d", seed, sum, len(tokens))
		}
	}
}

// TestFinderWithBOSAgreesWithLengths: scanning a file in blocks finds the
// documents that DocumentLengths finds in one piece, wherever blocks end.
func TestFinderWithBOSAgreesWithLengths(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 25))
		tokens := make([]int32, 1+r.IntN(30))
		for i := range tokens {
			tokens[i] = r.Int32N(3)
		}
		tokens[len(tokens)-1] = 0 // EOS, so that nothing is left over
		for _, bos := range []int32{-1, 1} {
			d := docFinder{eos: 0, bos: bos}
			for at := 0; at < len(tokens); {
				n := min(1+r.IntN(5), len(tokens)-at)
				d.add(int64(100+at), tokens[at:at+n])
				at += n
			}
			var got []int32
			for _, e := range d.finish() {
				got = append(got, int32(e.length()))
			}
			if want := DocumentLengths(nil, tokens, 0, bos); !cmp.Equal(want, got) {
				t.Fatalf("seed %d, BOS %d, %v: %v, want %v", seed, bos, tokens, got, want)
			}
		}
	}
}

func TestIntervalStaysInside(t *testing.T) {
	g := newPCG64Seed(1)
	for limit := range uint32(300) {
		seen := map[uint32]bool{}
		for range 40 {
			v := g.interval(limit)
			if v > limit {
				t.Fatalf("%d of 0 to %d", v, limit)
			}
			seen[v] = true
		}
		if limit > 3 && len(seen) < 3 {
			t.Errorf("only %d values of 0 to %d in 40 draws", len(seen), limit)
		}
	}
}

// TestLoadersPrepareTheCacheSideBySide: processes that start together tokenize
// the same text; all end up with the same files.
func TestLoadersPrepareTheCacheSideBySide(t *testing.T) {
	dir := t.TempDir()
	path := writeFile(t, dir, "a.txt", strings.Repeat("text ", 500))
	cfg := Config{Paths: []string{path}, SequenceLength: 8, BatchInstances: 2, CacheFolder: filepath.Join(dir, "cache")}
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			l, err := Open(cfg)
			if err != nil {
				t.Error(err)
				return
			}
			if err := l.Batch(0, new(Batch)); err != nil {
				t.Error(err)
			}
			l.Close()
		})
	}
	wg.Wait()
	entries, err := os.ReadDir(cfg.CacheFolder)
	if err != nil || len(entries) != 1 {
		t.Errorf("the cache holds %d entries, %v", len(entries), err)
	}
}

// TestLeftOversOfAKilledRunAreNoData: a run that was killed leaves its folder
// with a temporary one in it.
func TestLeftOversOfAKilledRunAreNoData(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, ".tokenize-123/part-00000.npy", "half")
	cfg := small(dir)
	_, err := Open(cfg)
	wantError(t, err, "holds no token file")
	input := writeFile(t, t.TempDir(), "a.txt", "abc")
	mustTokenize(t, TokenizeOptions{Inputs: []string{input}, Output: dir})
	cfg.VocabSize, cfg.SequenceLength, cfg.BatchInstances = 0, 2, 1
	if l := mustOpen(t, cfg); l.Instances() != 2 {
		t.Errorf("%d instances", l.Instances())
	}
}

func TestOldestFileIsClosedFirst(t *testing.T) {
	var r reader
	defer r.close()
	var paths []string
	for range maxOpen {
		paths = append(paths, writeTokens(t, 1, 1, 2, 3))
	}
	for _, p := range paths {
		if _, err := r.at(p, 0, 3); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.at(paths[0], 0, 1); err != nil { // now the second is the oldest
		t.Fatal(err)
	}
	if _, err := r.at(writeTokens(t, 1, 9), 0, 1); err != nil {
		t.Fatal(err)
	}
	if len(r.open) != maxOpen || r.open[paths[0]] == nil || r.open[paths[1]] != nil {
		t.Errorf("%d open; the first %t, the second %t", len(r.open), r.open[paths[0]] != nil, r.open[paths[1]] != nil)
	}
}
