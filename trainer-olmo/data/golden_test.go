package data

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// goldenFiles lists the files of one family in testdata/golden, or in the folder
// that replaces it. A folder without any golden file is a mistake in its name,
// and fails.
func goldenFiles(t *testing.T, pattern string) []string {
	t.Helper()
	dir := os.Getenv("ASTERIA_GOLDEN_OLMO")
	if dir == "" {
		dir = filepath.Join("testdata", "golden")
	}
	if !holdsGolden(dir) {
		t.Fatalf("no golden file of any family in %s", dir)
	}
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Skipf("%s holds no %s", dir, pattern)
	}
	return files
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
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// goldenData is the union of the sections of all files data_*.json; a file has
// some of them.
type goldenData struct {
	Init []struct {
		Seed      string
		SeedWords []uint32 `json:"seedseq_uint32x8"`
		State     string
		Inc       string
		Next64    []string `json:"first_next64"`
		Next32    []uint32 `json:"first_next32"`
	} `json:"pcg64_init"`
	Shuffles []struct {
		N       int
		Seed    uint64
		Epoch   int64
		Indices []uint32
		First   []uint32 `json:"first20"`
		Last    []uint32 `json:"last5"`
		SHA256  string   `json:"sha256_uint32_le"`
	}
	Core []struct {
		N         int `json:"dataset_len"`
		Seed      uint64
		Epoch     int64
		Chunk     int          `json:"chunk_size"`
		Batch     int          `json:"instances_per_global_batch"`
		World     int          `json:"dp_world_size"`
		Total     int          `json:"total_size"`
		Order     []uint32     `json:"global_indices"`
		Batches   [][]uint32   `json:"batches"`
		Ranks     [][][]uint32 `json:"per_rank"`
		IndexFile string       `json:"indices_filename"`
	} `json:"core_fsl_batches"`
	Legacy []struct {
		N        int `json:"dataset_len"`
		Seed     uint64
		Epoch    int64
		DropLast bool       `json:"drop_last"`
		World    int        `json:"world_size"`
		Start    int        `json:"start_index"`
		Total    int        `json:"total_size"`
		Order    []uint32   `json:"global_indices"`
		Ranks    [][]uint32 `json:"rank_instance_order"`
	} `json:"legacy_iterable"`
	Python []struct {
		N     int
		Seed  int64
		Order []int
	} `json:"python_random_shuffle_for_source_permutation_seed"`

	DocLengths []struct {
		Tokens []int32 `json:"input_ids"`
		EOS    int32
		BOS    *int32
		Want   []int32 `json:"doc_lens"`
	} `json:"document_lengths"`
	Cumulative []struct {
		Rows [][]int32 `json:"doc_lens"`
		Want []int32   `json:"cu"`
	}
	Labels []struct {
		Batch struct {
			Tokens    [][]int32   `json:"input_ids"`
			Keep      [][]bool    `json:"label_mask"`
			Attention [][]float64 `json:"attention_mask"`
			Instances []bool      `json:"instance_mask"`
		}
		Want [][]int32 `json:"labels"`
	}
	Filter *struct {
		MaxPeriod int `json:"max_period"`
		MinPeriod int `json:"min_period"`
		MaxCount  int `json:"max_count"`
		Cases     []struct {
			Tokens []int32 `json:"input_ids"`
			Found  []Repetition
			Keep   bool `json:"instance_mask_keep"`
		}
	} `json:"instance_filter"`
	Packing []struct {
		Limit     int    `json:"max_sequence_length"`
		Strategy  string `json:"long_doc_strategy"`
		Tokens    []int32
		EOS       int32
		Docs      [][2]int64 `json:"sorted_document_indices"`
		Instances [][]int32  `json:"instances_doc_ids"`
		Total     int64      `json:"total_tokens"`
	} `json:"packing_obfd"`
	Padded *struct {
		Tokens []int32
		EOS    int32
		Limit  int        `json:"max_sequence_length"`
		Want   [][2]int64 `json:"indices"`
	} `json:"padded_segments"`
	TokenFiles map[string]struct {
		Tokens []uint32
		DType  string
		Hex    string
	} `json:"token_files"`
	Chunking *struct {
		Files   []int64
		Seq     int `json:"sequence_length"`
		Offsets [][2]int64
	}
}

// eachGolden runs check on the files that have the section it looks at.
func eachGolden(t *testing.T, has func(goldenData) bool, check func(*testing.T, goldenData)) {
	found := false
	for _, file := range goldenFiles(t, "data_*.json") {
		var g goldenData
		readJSON(t, file, &g)
		if !has(g) {
			continue
		}
		found = true
		t.Run(filepath.Base(file), func(t *testing.T) { check(t, g) })
	}
	if !found {
		t.Skip("no golden file has this section")
	}
}

func bigSeed(t *testing.T, s string) []uint32 {
	n, ok := new(big.Int).SetString(s, 10)
	if !ok {
		t.Fatalf("seed %q", s)
	}
	var words []uint32
	for mask := big.NewInt(1<<32 - 1); n.Sign() > 0; n.Rsh(n, 32) {
		words = append(words, uint32(new(big.Int).And(n, mask).Uint64()))
	}
	return words
}

func (a uint128) String() string {
	n := new(big.Int).SetUint64(a.hi)
	return n.Add(n.Lsh(n, 64), new(big.Int).SetUint64(a.lo)).String()
}

func TestGoldenOrderGenerators(t *testing.T) {
	eachGolden(t, func(g goldenData) bool { return g.Init != nil }, func(t *testing.T, g goldenData) {
		for _, c := range g.Init {
			seq := newSeedSequence(bigSeed(t, c.Seed)...)
			words := make([]uint32, len(c.SeedWords))
			seq.fill(words)
			rng := newPCG64(seq)
			got := []any{words, rng.state.String(), rng.inc.String()}
			if diff := cmp.Diff([]any{c.SeedWords, c.State, c.Inc}, got); diff != "" {
				t.Errorf("seed %s (-want +got):\n%s", c.Seed, diff)
			}
			for i, want := range c.Next64 {
				if v := fmt.Sprint(rng.next64()); v != want {
					t.Errorf("seed %s: next64 %d is %s, want %s", c.Seed, i, v, want)
				}
			}
			rng = newPCG64(seq)
			for i, want := range c.Next32 {
				if v := rng.next32(); v != want {
					t.Errorf("seed %s: next32 %d is %d, want %d", c.Seed, i, v, want)
				}
			}
		}
	})
}

func TestGoldenOrderShuffles(t *testing.T) {
	eachGolden(t, func(g goldenData) bool { return g.Shuffles != nil }, func(t *testing.T, g goldenData) {
		for _, c := range g.Shuffles {
			got := CoreOrder(nil, c.N, 1, c.Seed, c.Epoch)
			where := fmt.Sprintf("n %d, seed %d, epoch %d", c.N, c.Seed, c.Epoch)
			if c.Indices != nil && !cmp.Equal(c.Indices, got) {
				t.Errorf("%s:\n%s", where, cmp.Diff(c.Indices, got))
			}
			first, last := got[:min(len(got), len(c.First))], got[max(0, len(got)-len(c.Last)):]
			if !cmp.Equal(c.First, first) || !cmp.Equal(c.Last, last) {
				t.Errorf("%s: begins %v ends %v, want %v and %v", where, first, last, c.First, c.Last)
			}
			if c.SHA256 != "" && hashOrder(got) != c.SHA256 {
				t.Errorf("%s: hash %s, want %s", where, hashOrder(got), c.SHA256)
			}
		}
	})
}

func hashOrder(order []uint32) string {
	raw := make([]byte, 0, 4*len(order))
	for _, v := range order {
		raw = binary.LittleEndian.AppendUint32(raw, v)
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// rankColumns is what a rank takes of a row, as Loader.Batch does.
func rankColumns(row []uint32, rank, world int) []uint32 {
	out := []uint32{}
	for i := rank; i < len(row); i += world {
		out = append(out, row[i])
	}
	return out
}

func TestGoldenOrderCore(t *testing.T) {
	eachGolden(t, func(g goldenData) bool { return g.Core != nil }, func(t *testing.T, g goldenData) {
		for _, c := range g.Core {
			where := fmt.Sprintf("n %d, seed %d, epoch %d, chunk %d", c.N, c.Seed, c.Epoch, c.Chunk)
			if diff := cmp.Diff(c.Order, CoreOrder(nil, c.N, c.Chunk, c.Seed, c.Epoch)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", where, diff)
			}
			s := schedule{n: c.N, chunk: c.Chunk, world: c.World, batch: c.Batch, seed: c.Seed}
			per := s.batches()
			if per != int64(len(c.Batches)) || int(per)*c.Batch != c.Total {
				t.Fatalf("%s: %d batches, want %d", where, per, len(c.Batches))
			}
			for k, want := range c.Batches {
				row, epoch, err := s.row((c.Epoch-1)*per + int64(k))
				if err != nil || epoch != c.Epoch || !cmp.Equal(want, row) {
					t.Errorf("%s: batch %d is %v of epoch %d, want %v: %v", where, k, row, epoch, want, err)
				}
				for rank := range c.World {
					if got := rankColumns(row, rank, c.World); !cmp.Equal(c.Ranks[rank][k], got) {
						t.Errorf("%s: batch %d, rank %d: %v, want %v", where, k, rank, got, c.Ranks[rank][k])
					}
				}
			}
			if got := IndexFileName(c.N, c.Chunk, c.Seed, c.Epoch); got != c.IndexFile {
				t.Errorf("index file %s, want %s", got, c.IndexFile)
			}
		}
	})
}

func TestGoldenOrderLegacy(t *testing.T) {
	eachGolden(t, func(g goldenData) bool { return g.Legacy != nil }, func(t *testing.T, g goldenData) {
		for _, c := range g.Legacy {
			where := fmt.Sprintf("n %d, seed %d, epoch %d, world %d, drop %t", c.N, c.Seed, c.Epoch, c.World, c.DropLast)
			got := LegacyOrder(nil, c.N, c.World, !c.DropLast, c.Seed, c.Epoch)
			if diff := cmp.Diff(c.Order, got); diff != "" || len(got) != c.Total {
				t.Errorf("%s (-want +got):\n%s", where, diff)
				continue
			}
			for rank, want := range c.Ranks {
				if cols := rankColumns(got[c.Start:], rank, c.World); !cmp.Equal(want, cols) {
					t.Errorf("%s: rank %d takes %v, want %v", where, rank, cols, want)
				}
			}
		}
	})
}

func TestGoldenOrderOfSources(t *testing.T) {
	eachGolden(t, func(g goldenData) bool { return g.Python != nil }, func(t *testing.T, g goldenData) {
		for _, c := range g.Python {
			if diff := cmp.Diff(c.Order, PythonOrder(c.N, c.Seed)); diff != "" {
				t.Errorf("n %d, seed %d (-want +got):\n%s", c.N, c.Seed, diff)
			}
		}
	})
}

func TestGoldenDataDocuments(t *testing.T) {
	eachGolden(t, func(g goldenData) bool { return g.DocLengths != nil || g.Cumulative != nil }, func(t *testing.T, g goldenData) {
		for _, c := range g.DocLengths {
			bos := int32(-1)
			if c.BOS != nil {
				bos = *c.BOS
			}
			if got := DocumentLengths(nil, c.Tokens, c.EOS, bos); !cmp.Equal(c.Want, got) {
				t.Errorf("%v, EOS %d, BOS %d: %v, want %v", c.Tokens, c.EOS, bos, got, c.Want)
			}
		}
		for _, c := range g.Cumulative {
			if got := CumulativeLengths(nil, c.Rows); !cmp.Equal(c.Want, got) {
				t.Errorf("%v: %v, want %v", c.Rows, got, c.Want)
			}
		}
	})
}

func TestGoldenDataLabels(t *testing.T) {
	eachGolden(t, func(g goldenData) bool { return g.Labels != nil }, func(t *testing.T, g goldenData) {
		for i, c := range g.Labels {
			seq := len(c.Batch.Tokens[0])
			tokens, want := flat(c.Batch.Tokens), flat(c.Want)
			keep := flat(c.Batch.Keep)
			if a := flat(c.Batch.Attention); a != nil {
				keep = sized(keep, len(a))
				for i := range a {
					keep[i] = (c.Batch.Keep == nil || keep[i]) && a[i] != 0
				}
			}
			got := make([]int32, len(tokens))
			Labels(got, tokens, seq, keep, c.Batch.Instances)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("case %d (-want +got):\n%s", i, diff)
			}
		}
	})
}

func flat[T any](rows [][]T) []T {
	var out []T
	for _, r := range rows {
		out = append(out, r...)
	}
	return out
}

func TestGoldenDataFilter(t *testing.T) {
	eachGolden(t, func(g goldenData) bool { return g.Filter != nil }, func(t *testing.T, g goldenData) {
		f := Filter{MaxPeriod: g.Filter.MaxPeriod, MinPeriod: g.Filter.MinPeriod, MaxCount: g.Filter.MaxCount}
		for i, c := range g.Filter.Cases {
			got := []Repetition{}
			f.Repetitions(c.Tokens, func(r Repetition) bool {
				got = append(got, r)
				return true
			})
			if diff := cmp.Diff(c.Found, got); diff != "" {
				t.Errorf("case %d (-want +got):\n%s", i, diff)
			}
			if keep := f.Keep(c.Tokens); keep != c.Keep {
				t.Errorf("case %d: keep %t, want %t", i, keep, c.Keep)
			}
		}
	})
}

func TestGoldenDataPacking(t *testing.T) {
	eachGolden(t, func(g goldenData) bool { return g.Packing != nil }, func(t *testing.T, g goldenData) {
		for i, c := range g.Packing {
			var docs []extent
			for _, d := range documentsOf(c.Tokens, c.EOS) {
				docs = shorten(docs, d, int64(c.Limit), c.Strategy)
			}
			p := pack(docs, c.Limit)
			var indices [][2]int64
			for _, d := range p.docs {
				indices = append(indices, [2]int64{d.start, d.end})
			}
			if diff := cmp.Diff([]any{c.Docs, c.Instances, c.Total}, []any{indices, p.instances, p.tokens}); diff != "" {
				t.Errorf("case %d (-want +got):\n%s", i, diff)
			}
		}
	})
}

// documentsOf finds documents the way files are scanned.
func documentsOf(tokens []int32, eos int32) []extent {
	f := docFinder{eos: eos, bos: -1}
	f.add(0, tokens)
	return f.docs
}

func TestGoldenDataPadded(t *testing.T) {
	eachGolden(t, func(g goldenData) bool { return g.Padded != nil }, func(t *testing.T, g goldenData) {
		var got [][2]int64
		for _, d := range documentsOf(g.Padded.Tokens, g.Padded.EOS) {
			for _, e := range shorten(nil, d, int64(g.Padded.Limit), LongTruncate) {
				got = append(got, [2]int64{e.start, e.end})
			}
		}
		if diff := cmp.Diff(g.Padded.Want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestGoldenDataTokenFiles(t *testing.T) {
	eachGolden(t, func(g goldenData) bool { return g.TokenFiles != nil }, func(t *testing.T, g goldenData) {
		for name, c := range g.TokenFiles {
			w, err := widthOf(c.DType)
			if err != nil {
				t.Fatal(err)
			}
			var raw []byte
			for _, id := range c.Tokens {
				raw = w.append(raw, id)
			}
			if hex.EncodeToString(raw) != c.Hex {
				t.Errorf("%s: %x, want %s", name, raw, c.Hex)
			}
			back := make([]int32, len(c.Tokens))
			if bad := w.decode(back, raw, 1<<31-1); bad >= 0 {
				t.Errorf("%s: id %d out of range", name, bad)
			}
			for i, id := range c.Tokens {
				if back[i] != int32(id) {
					t.Errorf("%s: token %d is %d, want %d", name, i, back[i], id)
				}
			}
		}
	})
}

func TestGoldenDataChunking(t *testing.T) {
	eachGolden(t, func(g goldenData) bool { return g.Chunking != nil }, func(t *testing.T, g goldenData) {
		var extents []extent
		for _, n := range g.Chunking.Files {
			extents = append(extents, extent{0, n})
		}
		set := fixedInstances(extents, int64(g.Chunking.Seq), int64(g.Chunking.Seq))
		first := int64(0)
		for i, want := range g.Chunking.Offsets {
			if got := [2]int64{first, set.ends[i]}; got != want {
				t.Errorf("file %d holds instances %v, want %v", i, got, want)
			}
			first = set.ends[i]
		}
	})
}
