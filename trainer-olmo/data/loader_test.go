package data

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBatchesHoldTheInstancesTheyName(t *testing.T) {
	a, b := writeTokens(t, 1, count(30, 200)...), writeTokens(t, 1, count(21, 100)...)
	cfg := small(a)
	cfg.Paths = []string{a, b} // 7 and 5 instances of 4, tails dropped
	l := mustOpen(t, cfg)
	if l.Instances() != 12 || l.Batches() != 6 || l.Tokens() != 48 {
		t.Fatalf("%d instances, %d batches, %d tokens", l.Instances(), l.Batches(), l.Tokens())
	}
	want := CoreOrder(nil, 12, 1, 7, 1)
	for k := range l.Batches() {
		got := mustBatch(t, l, k)
		if got.Rows != 2 || got.Seq != 4 || got.Epoch != 1 || !cmp.Equal(got.Instances, want[2*k:2*k+2]) {
			t.Fatalf("batch %d: %+v", k, got)
		}
		for row, i := range got.Instances {
			first := int32(4 * i)
			if i >= 7 {
				first = int32(4 * (i - 7))
			}
			if !cmp.Equal(got.Tokens[4*row:4*row+4], []int32{first, first + 1, first + 2, first + 3}) {
				t.Errorf("batch %d, instance %d: %v", k, i, got.Tokens)
			}
		}
		if got.LabelMask != nil || got.InstanceMask != nil || got.DocLens != nil {
			t.Errorf("batch %d has masks", k)
		}
	}
}

// TestA29_OrderAfterResume: the order after a resume in a later epoch is that of
// the uninterrupted run, for one rank and for three.
func TestA29_OrderAfterResume(t *testing.T) {
	for _, world := range []int{1, 3} {
		for _, order := range []string{OrderCore, OrderLegacy} {
			t.Run(fmt.Sprintf("ranks=%d/order=%s", world, order), func(t *testing.T) {
				cfg := small(writeTokens(t, 1, count(40, 200)...))
				cfg.Order, cfg.WorldSize, cfg.BatchInstances = order, world, 2
				if world == 3 {
					cfg.BatchInstances = 3
				}
				for rank := range world {
					cfg.Rank = rank
					checkResume(t, cfg)
				}
			})
		}
	}
}

func checkResume(t *testing.T, cfg Config) {
	t.Helper()
	const steps = 20
	var whole [][]uint32
	l := mustOpen(t, cfg)
	for k := range int64(steps) {
		whole = append(whole, slices.Clone(mustBatch(t, l, k).Instances))
	}
	var resumed [][]uint32
	for _, stop := range []int64{2, 7, 13, steps} { // a new loader after each stop
		l := mustOpen(t, cfg)
		for k := int64(len(resumed)); k < stop; k++ {
			resumed = append(resumed, slices.Clone(mustBatch(t, l, k).Instances))
		}
	}
	if diff := cmp.Diff(whole, resumed); diff != "" {
		t.Errorf("rank %d (-whole +resumed):\n%s", cfg.Rank, diff)
	}
	per := int(l.Batches())
	if first, second := whole[:per], whole[per:2*per]; cmp.Equal(first, second) {
		t.Errorf("epochs have the same order")
	}
	for epoch := range 2 {
		all := slices.Concat(whole[epoch*per : (epoch+1)*per]...)
		slices.Sort(all)
		if len(slices.Compact(all)) != per*cfg.BatchInstances/cfg.world() {
			t.Errorf("epoch %d serves an instance twice", epoch)
		}
	}
}

func TestRanksPartitionTheBatch(t *testing.T) {
	cfg := small(writeTokens(t, 1, count(200, 200)...))
	cfg.BatchInstances = 6
	whole := mustBatch(t, mustOpen(t, cfg), 3)
	cfg.WorldSize = 3
	for rank := range 3 {
		cfg.Rank = rank
		part := mustBatch(t, mustOpen(t, cfg), 3)
		for i := range 2 {
			if part.Instances[i] != whole.Instances[rank+3*i] {
				t.Errorf("rank %d has %v of %v", rank, part.Instances, whole.Instances)
			}
		}
	}
}

func TestLegacyKeepLastServesAShortBatch(t *testing.T) {
	cfg := small(writeTokens(t, 1, count(40, 200)...))
	cfg.Order, cfg.KeepLast, cfg.BatchInstances, cfg.WorldSize = OrderLegacy, true, 6, 3
	l := mustOpen(t, cfg)
	if l.Batches() != 2 || l.Tokens() != 48 {
		t.Fatalf("%d batches, %d tokens", l.Batches(), l.Tokens())
	}
	first, last, next := mustBatch(t, l, 0), mustBatch(t, l, 1), mustBatch(t, l, 2)
	if first.Rows != 2 || last.Rows != 2 || next.Epoch != 1 || first.Epoch != 0 {
		t.Errorf("rows %d, %d, epochs %d, %d", first.Rows, last.Rows, first.Epoch, next.Epoch)
	}
	cfg.BatchInstances = 9
	if b := mustBatch(t, mustOpen(t, cfg), 1); b.Rows != 1 || len(b.Tokens) != 4 {
		t.Errorf("the last of 12 instances in batches of 9: %+v", b)
	}
}

func TestMaxTargetLengthKeepsTheOrderComparable(t *testing.T) {
	path := writeTokens(t, 1, count(67, 200)...)
	read := func(seq int) []int32 {
		cfg := small(path)
		cfg.SequenceLength, cfg.MaxTargetSequenceLength, cfg.BatchInstances = seq, 16, 16/seq
		l := mustOpen(t, cfg)
		var all []int32
		for k := range l.Batches() {
			all = append(all, mustBatch(t, l, k).Tokens...)
		}
		return all
	}
	long := read(16)
	if len(long) != 64 || !cmp.Equal(long, read(8)) || !cmp.Equal(long, read(4)) {
		t.Error("shorter instances come in another order")
	}
}

func TestPaddedInstancesAreDocuments(t *testing.T) {
	cfg := small(writeTokens(t, 1, 5, 6, 0, 7, 8, 9, 10, 11, 0, 12, 0, 99))
	cfg.Kind, cfg.EOS, cfg.Pad, cfg.BatchInstances = KindPadded, intp(0), intp(1), 3
	l := mustOpen(t, cfg)
	got := map[uint32][]int32{}
	masks := map[uint32][]bool{}
	b := mustBatch(t, l, 0)
	for i, n := range b.Instances {
		got[n], masks[n] = b.Tokens[4*i:4*i+4], b.LabelMask[4*i:4*i+4]
	}
	want := map[uint32][]int32{0: {5, 6, 0, 1}, 1: {7, 8, 9, 10}, 2: {12, 0, 1, 1}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !cmp.Equal(masks[0], []bool{true, true, true, false}) || !cmp.Equal(masks[2], []bool{true, true, false, false}) {
		t.Errorf("masks %v", masks)
	}
}

func TestPackedInstancesHoldWholeDocuments(t *testing.T) {
	a := writeTokens(t, 1, 5, 5, 0, 6, 0, 7, 7, 7, 7, 7, 7, 7, 7, 0) // lengths 3, 2, 9
	b := writeTokens(t, 1, 8, 8, 8, 8, 0)
	cfg := Config{Paths: []string{a, b}, VocabSize: 10, Kind: KindPacked, SequenceLength: 8, BatchInstances: 1, EOS: intp(0), Pad: intp(9), SourceGroupSize: 2, DocLengths: true}
	l := mustOpen(t, cfg)
	var rows []string
	for k := range l.Batches() {
		b := mustBatch(t, l, k)
		rows = append(rows, fmt.Sprint(b.Tokens, b.DocLens[0], b.LabelMask[7]))
	}
	slices.Sort(rows)
	want := []string{"[6 0 9 9 9 9 9 9] [2 6] false", "[7 7 7 7 7 7 7 7] [8] true", "[8 8 8 8 0 5 5 0] [5 3] true"}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	cfg.LongDocStrategy = LongFragment
	if n := mustOpen(t, cfg).Instances(); n != 3 {
		t.Errorf("%d instances with fragments, want 3", n)
	}
}

func TestMasksComeFromTheirFiles(t *testing.T) {
	path := writeTokens(t, 1, count(16, 200)...)
	mask := writeFile(t, t.TempDir(), "mask.npy", strings.Repeat("\x01\x00\x01\x01", 4))
	cfg := small(path)
	cfg.LabelMaskPaths = []string{mask}
	b := mustBatch(t, mustOpen(t, cfg), 0)
	if !cmp.Equal(b.LabelMask, []bool{true, false, true, true, true, false, true, true}) {
		t.Errorf("mask %v", b.LabelMask)
	}
	cfg.LabelMaskPaths = []string{writeFile(t, t.TempDir(), "short.npy", "\x01")}
	_, err := Open(cfg)
	wantError(t, err, "short.npy has 1 bytes for the 16 tokens")
	cfg.LabelMaskPaths = []string{writeFile(t, t.TempDir(), "wrong.npy", strings.Repeat("\x07", 16))}
	wantError(t, mustOpen(t, cfg).Batch(0, new(Batch)), "wrong.npy", "is 7, allowed 0 and 1")
}

func TestFilterMasksInstances(t *testing.T) {
	ids := append(make([]uint32, 40), count(40, 200)...)
	cfg := small(writeTokens(t, 1, ids...))
	cfg.SequenceLength, cfg.Filter = 40, &Filter{}
	b := mustBatch(t, mustOpen(t, cfg), 0)
	for i, n := range b.Instances {
		if b.InstanceMask[i] != (n == 1) {
			t.Errorf("instance %d: keep %t", n, b.InstanceMask[i])
		}
	}
}

func TestBatchesAllocateNothing(t *testing.T) {
	cfg := small(writeTokens(t, 2, count(4000, 200)...))
	cfg.DType, cfg.EOS, cfg.DocLengths, cfg.Filter, cfg.SequenceLength = "uint16", intp(3), true, &Filter{}, 64
	l := mustOpen(t, cfg)
	var b Batch
	k := int64(0)
	if n := testing.AllocsPerRun(int(l.Batches())-2, func() {
		if err := l.Batch(k, &b); err != nil {
			t.Fatal(err)
		}
		k++
	}); n != 0 {
		t.Errorf("%v allocations a batch", n)
	}
}

func TestFilesAreClosedWhenTheyAreMany(t *testing.T) {
	cfg := small("")
	cfg.Paths = nil
	for range maxOpen + 10 {
		cfg.Paths = append(cfg.Paths, writeTokens(t, 1, count(8, 200)...))
	}
	l := mustOpen(t, cfg)
	for k := range l.Batches() {
		mustBatch(t, l, k)
	}
	if len(l.reader.open) > maxOpen {
		t.Errorf("%d files open", len(l.reader.open))
	}
}

func TestFingerprintTellsDataApart(t *testing.T) {
	dir := t.TempDir()
	path := writeFile(t, dir, "a.npy", string(make([]byte, 40)))
	base := small(path)
	prints := map[string]string{}
	add := func(name string, edit func(*Config)) {
		cfg := base
		edit(&cfg)
		p := mustOpen(t, cfg).Fingerprint()
		if other, ok := prints[p]; ok {
			t.Errorf("%s and %s have the same fingerprint", name, other)
		}
		prints[p] = name
	}
	add("base", func(*Config) {})
	add("seed", func(c *Config) { c.Seed++ })
	add("length", func(c *Config) { c.SequenceLength = 5 })
	add("order", func(c *Config) { c.Order = OrderLegacy })
	add("filter", func(c *Config) { c.Filter = &Filter{} })
	add("vocabulary", func(c *Config) { c.VocabSize = 100 })
	add("EOS", func(c *Config) { c.EOS = intp(4) })
	add("held out", func(c *Config) { c.HeldOutTokens = 8 })
	add("another file", func(c *Config) { c.Paths = []string{writeFile(t, dir, "b.npy", string(make([]byte, 40)))} })
	add("another size", func(c *Config) { c.Paths = []string{writeFile(t, t.TempDir(), "a.npy", string(make([]byte, 44)))} })

	same := base
	same.BatchInstances, same.Paths = 5, []string{writeFile(t, t.TempDir(), "a.npy", string(make([]byte, 40)))}
	if name := prints[mustOpen(t, same).Fingerprint()]; name != "base" {
		t.Errorf("another batch size and folder: fingerprint of %q", name)
	}
}

func TestHeldOutPartsAreDisjointAndWhole(t *testing.T) {
	ids := count(100, 50)
	ids[83] = 49 // EOS, else every 50 tokens: at 49 and 99
	cfg := small(writeTokens(t, 1, ids...))
	cfg.EOS, cfg.HeldOutTokens, cfg.SequenceLength = intp(49), 15, 1
	train := mustOpen(t, cfg)
	held, err := OpenHeldOut(cfg, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if train.Instances() != 84 || held.Instances() != 16 {
		t.Errorf("%d and %d tokens; the cut belongs after the document end at 83", train.Instances(), held.Instances())
	}
	cfg.EOS = nil
	if n := mustOpen(t, cfg).Instances(); n != 85 {
		t.Errorf("without EOS %d tokens to train on, want 85", n)
	}
	cfg.HeldOutTokens = 100
	_, err = Open(cfg)
	wantError(t, err, "data.held_out_tokens = 100 of 100 tokens")
}

func TestHeldOutMayBeWholeFiles(t *testing.T) {
	cfg := small(writeTokens(t, 1, count(40, 200)...))
	cfg.Paths = append(cfg.Paths, writeTokens(t, 1, count(40, 200)...))
	cfg.HeldOut = 0.5
	if l := mustOpen(t, cfg); l.Instances() != 10 || len(l.Files()) != 1 {
		t.Errorf("%d instances of %v", l.Instances(), l.Files())
	}
	l, err := OpenHeldOut(cfg, 0)
	if err != nil || l.Instances() != 10 || l.Files()[0] != cfg.Paths[1] {
		t.Fatalf("%v", err)
	}
	l.Close()
}

func TestEvaluationHasAFixedOrder(t *testing.T) {
	cfg := small(writeTokens(t, 1, count(44, 200)...)) // 11 instances
	cfg.BatchInstances = 3
	l, err := OpenEval(cfg, 20) // five instances
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var got []uint32
	for k := range l.Batches() {
		got = append(got, mustBatch(t, l, k).Instances...)
	}
	if !cmp.Equal(got, []uint32{0, 2, 4, 6, 8}) || l.Tokens() != 20 {
		t.Errorf("instances %v, %d tokens", got, l.Tokens())
	}
	wantError(t, l.Batch(2, new(Batch)), "batch 2, allowed 0 to 1")
	_, err = OpenHeldOut(cfg, 0)
	wantError(t, err, "nothing is held out")
}

func TestDatasetsComeInTheOrderOfTheirLabels(t *testing.T) {
	a, b := writeTokens(t, 1, count(8, 200)...), writeTokens(t, 1, count(8, 200)...)
	cfg := small("")
	cfg.Paths, cfg.Datasets = nil, map[string][]string{"z": {a}, "b": {b}}
	if got := mustOpen(t, cfg).Files(); !cmp.Equal(got, []string{b, a}) {
		t.Errorf("files %v", got)
	}
}

func TestSourcesArePermutedWithTheirMasks(t *testing.T) {
	cfg := small("")
	cfg.Paths = nil
	dir := t.TempDir()
	for i := range 5 {
		cfg.Paths = append(cfg.Paths, writeFile(t, dir, fmt.Sprintf("%d.npy", i), string(make([]byte, 8))))
		cfg.LabelMaskPaths = append(cfg.LabelMaskPaths, writeFile(t, dir, fmt.Sprintf("%d.mask", i), string(make([]byte, 8))))
	}
	seed := int64(0)
	cfg.SourcePermutationSeed = &seed
	l := mustOpen(t, cfg)
	for i, from := range []int{2, 1, 0, 4, 3} {
		if f := l.files[i]; f.path != cfg.Paths[from] || f.mask != cfg.LabelMaskPaths[from] {
			t.Errorf("file %d is %s with %s", i, f.path, f.mask)
		}
	}
}

func TestFoldersAndPatternsAreExpanded(t *testing.T) {
	dir := t.TempDir()
	b, a := writeFile(t, dir, "b.npy", string(make([]byte, 8))), writeFile(t, dir, "a.npy", string(make([]byte, 8)))
	for _, edit := range []func(*Config){
		func(c *Config) { c.Paths = []string{dir} },
		func(c *Config) { c.Paths, c.ExpandGlob = []string{filepath.Join(dir, "?.npy")}, true },
	} {
		cfg := small("")
		edit(&cfg)
		if got := mustOpen(t, cfg).Files(); !cmp.Equal(got, []string{a, b}) {
			t.Errorf("files %v", got)
		}
	}
	cfg := small(filepath.Join(dir, "x*.npy"))
	cfg.ExpandGlob = true
	_, err := Open(cfg)
	wantError(t, err, "x*.npy", "names no file")
	cfg = small(t.TempDir())
	_, err = Open(cfg)
	wantError(t, err, "holds no token file")
}

func TestAFileCutWhileInUseIsNamed(t *testing.T) {
	path := writeTokens(t, 1, count(40, 200)...)
	l := mustOpen(t, small(path))
	if err := os.Truncate(path, 6); err != nil {
		t.Fatal(err)
	}
	var err error
	for k := range l.Batches() {
		if err = l.Batch(k, new(Batch)); err != nil {
			break
		}
	}
	wantError(t, err, path, "ends at byte", "was cut while in use")
}
