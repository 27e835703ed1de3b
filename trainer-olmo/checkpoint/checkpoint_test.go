package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// state is a state with random numbers, NaN and infinities among them.
func state(seed uint64, step int64) State {
	r := rand.New(rand.NewPCG(seed, uint64(step)))
	f32 := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = math.Float32frombits(r.Uint32())
		}
		return x
	}
	f64 := func(n int) []float64 {
		x := make([]float64, n)
		for i := range x {
			x[i] = math.Float64frombits(r.Uint64())
		}
		return x
	}
	st := State{
		Position: Position{Step: step, Batch: step, MicroBatches: 2 * step, Tokens: 4096 * step, Epoch: 1, Seed: 1, DataSeed: 2},
		Weights: []Tensor{
			{Section: param.Section{Name: "model.norm.weight", F32: f32(7)}, Shape: []int{7}},
			{Section: param.Section{Name: "lm_head.weight", F32: f32(12)}, Shape: []int{4, 3}},
		},
		Optimizer: []param.Section{
			{Name: "adamw/updates", I64: []int64{step}},
			{Name: "adamw/lm_head.weight/exp_avg", F32: f32(12)},
			{Name: "kron/f64", F64: f64(3)},
			{Name: "empty", F32: []float32{}},
		},
		Runtime: []param.Section{{Name: "elapsed", F64: f64(1)}},
		Origin:  Origin{Kernel: "generic", Precision: "float32", Fingerprint: "abc"},
		Config:  []byte("run_name: test\n"),
	}
	return st
}

// blank is a state of the same layout without its numbers.
func blank(st State) State {
	c := st.clone()
	for _, s := range append(slices.Clone(c.Optimizer), c.Runtime...) {
		clear(s.F32)
		clear(s.F64)
		clear(s.I64)
	}
	for _, w := range c.Weights {
		clear(w.F32)
	}
	c.Position = Position{}
	return *c
}

// restore reads a checkpoint into a blank state.
func restore(t *testing.T, c *Checkpoint, layout State) State {
	t.Helper()
	st := blank(layout)
	p, err := c.Position()
	if err := errors.Join(err, c.Weights(st.Weights), c.Optimizer(st.Optimizer), c.Runtime(st.Runtime)); err != nil {
		t.Fatal(err)
	}
	st.Position = p
	return st
}

func mustOpen(t *testing.T, dir string, o Options) *Store {
	t.Helper()
	s, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustLatest(t *testing.T, dir string) *Checkpoint {
	t.Helper()
	c, err := Latest(dir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func entries(t *testing.T, dir string) []string {
	t.Helper()
	es, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range es {
		names = append(names, e.Name())
	}
	return names
}

func TestSaveAndRestoreKeepEveryBit(t *testing.T) {
	dir := t.TempDir()
	s, st := mustOpen(t, dir, Options{}), state(1, 10)
	if err := s.Save(st); err != nil {
		t.Fatal(err)
	}
	c := mustLatest(t, dir)
	got := restore(t, c, st)
	if a, b := DigestState(got), DigestState(st); a != b {
		t.Errorf("restored digest\n%v\nwant\n%v", a, b)
	}
	if got.Position != st.Position {
		t.Errorf("position %+v, want %+v", got.Position, st.Position)
	}
	if c.Meta.Origin != st.Origin {
		t.Errorf("origin %+v, want %+v", c.Meta.Origin, st.Origin)
	}
	for _, path := range []string{dir, filepath.Join(dir, "step10")} {
		d, err := DigestDir(path)
		if err != nil || d != DigestState(st) {
			t.Errorf("DigestDir(%s) = %v, %v", filepath.Base(path), d, err)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "latest")); err != nil || string(b) != "step10\n" {
		t.Errorf("latest holds %q, %v", b, err)
	}
}

func TestDigestSeparatesTheGroups(t *testing.T) {
	base := DigestState(state(1, 10))
	changed := func(change func(*State)) Digest {
		st := state(1, 10)
		change(&st)
		return DigestState(st)
	}
	for _, tc := range []struct {
		name   string
		change func(*State)
		part   func(Digest) string
		total  bool
	}{
		{"weights", func(s *State) { s.Weights[0].F32[3] = 1 }, func(d Digest) string { return d.Weights }, true},
		{"optimizer", func(s *State) { s.Optimizer[0].I64[0]++ }, func(d Digest) string { return d.Optimizer }, true},
		{"position", func(s *State) { s.Position.Epoch++ }, func(d Digest) string { return d.Position }, true},
		{"runtime", func(s *State) { s.Runtime[0].F64[0] = 7 }, func(d Digest) string { return d.Runtime }, false},
	} {
		d := changed(tc.change)
		if tc.part(d) == tc.part(base) {
			t.Errorf("%s: its digest did not change", tc.name)
		}
		if (d.Total != base.Total) != tc.total {
			t.Errorf("%s: the total changed: %v, want %v", tc.name, d.Total != base.Total, tc.total)
		}
	}
	if d := changed(func(s *State) { s.Config = nil; s.Origin.Kernel = "x"; slices.Reverse(s.Weights) }); d != base {
		t.Error("configuration, origin or the order of the weights entered the digest")
	}
}

func TestKeepAndEphemeral(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, Options{Keep: 2})
	for step := int64(1); step <= 6; step++ {
		st := state(1, step)
		st.Ephemeral = step == 3 || step == 6
		if err := s.Save(st); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"latest", "step4", "step5", "step6"}
	if got := entries(t, dir); !slices.Equal(got, want) {
		t.Errorf("left %v, want %v: the ephemeral step 6 is the newest and does not count", got, want)
	}
}

func TestSavingAStepAgainReplacesIt(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, Options{})
	for seed := range uint64(2) {
		if err := s.Save(state(seed, 5)); err != nil {
			t.Fatal(err)
		}
	}
	if d, err := DigestDir(dir); err != nil || d != DigestState(state(1, 5)) {
		t.Errorf("digest %v, %v", d, err)
	}
}

func TestAsyncSaveIsASnapshot(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, Options{})
	st := state(3, 1)
	want := DigestState(st)
	if err := s.SaveAsync(st); err != nil {
		t.Fatal(err)
	}
	st.Weights[0].F32[0], st.Optimizer[1].F32[0] = 1, 2
	if err := s.SaveAsync(st); !errors.Is(err, ErrBusy) {
		t.Errorf("a second save at once gave %v, want ErrBusy", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if d, err := DigestDir(dir); err != nil || d != want {
		t.Errorf("the save saw later changes: %v", err)
	}
	if s.Busy() {
		t.Error("busy after Close")
	}
}

func TestAsyncCopyAllocatesOnce(t *testing.T) {
	st := state(3, 1)
	var s Store
	s.Reserve(st)
	if n := testing.AllocsPerRun(10, func() { s.Reserve(st); s.shadow.copyFrom(st) }); n != 0 {
		t.Errorf("%v allocations for a snapshot, want 0", n)
	}
}

func TestMismatchesAreListedOneByOne(t *testing.T) {
	dir := t.TempDir()
	st := state(1, 1)
	if err := mustOpen(t, dir, Options{}).Save(st); err != nil {
		t.Fatal(err)
	}
	c := mustLatest(t, dir)
	want := blank(st)
	want.Optimizer = []param.Section{
		{Name: "adamw/updates", F64: make([]float64, 1)},
		{Name: "kron/f64", F64: make([]float64, 4)},
		{Name: "new/one", I64: make([]int64, 1)},
		{Name: "new/two", I64: make([]int64, 1)},
	}
	err := c.Optimizer(want.Optimizer)
	var m *MismatchError
	if !errors.As(err, &m) || !errors.Is(err, ErrMismatch) {
		t.Fatalf("error %v", err)
	}
	if len(m.Missing) != 2 || len(m.Unexpected) != 2 || len(m.Reshaped) != 2 {
		t.Errorf("listed %+v", m)
	}
	for _, name := range []string{"new/one", "new/two", "empty", "adamw/lm_head.weight/exp_avg", "kron/f64: F64[3]", "adamw/updates: I64[1]"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("the message does not name %q:\n%v", name, err)
		}
	}
	if want.Optimizer[0].F64[0] != 0 {
		t.Error("a refused file changed the state")
	}
}

// pack is the bytes of a container.
func pack(t testing.TB, s []param.Section) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := writeContainer(&b, s, sha256.New()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func unpack(raw []byte, dst []param.Section) error {
	c, err := openContainer(bytes.NewReader(raw), int64(len(raw)), "x.state")
	if err != nil {
		return err
	}
	return c.load(dst)
}

func TestContainerConvertsAcrossItsBuffer(t *testing.T) {
	const n = copyBytes/4 + 3
	in := param.Section{Name: "big", F32: make([]float32, n)}
	for i := range in.F32 {
		in.F32[i] = float32(i)
	}
	out := param.Section{Name: "big", F32: make([]float32, n)}
	if err := unpack(pack(t, []param.Section{in}), []param.Section{out}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(in.F32, out.F32) {
		t.Error("the elements differ")
	}
}

func TestContainerRefusesEveryCut(t *testing.T) {
	st := state(2, 1)
	raw := pack(t, st.Optimizer)
	for n := range raw {
		dst := blank(st).Optimizer
		err := unpack(raw[:n], dst)
		if err == nil {
			t.Fatalf("a file cut to %d of %d bytes was accepted", n, len(raw))
		}
		if !strings.Contains(err.Error(), "x.state") {
			t.Fatalf("the error does not name the file: %v", err)
		}
	}
}

func TestContainerRefusesEveryFlippedBit(t *testing.T) {
	st := state(2, 1)
	raw := pack(t, st.Optimizer)
	for i := range raw {
		bad := slices.Clone(raw)
		bad[i] ^= 1 << (i % 8)
		dst := blank(st).Optimizer
		if err := unpack(bad, dst); err == nil {
			t.Fatalf("byte %d of %d was flipped without notice", i, len(raw))
		}
		if dst[0].I64[0] != 0 || dst[1].F32[0] != 0 {
			t.Fatalf("byte %d: a damaged file changed the state", i)
		}
	}
	bad := slices.Clone(raw)
	bad[headBytes+8] ^= 1
	if err := unpack(bad, blank(st).Optimizer); !strings.Contains(err.Error(), "adamw/lm_head.weight/exp_avg") {
		t.Errorf("the error does not name the section: %v", err)
	}
}

// hostile is a container with an index made by hand.
func hostile(index []byte, n int, data int) []byte {
	b := append([]byte(magic), 1, 0, 0, 0)
	b = append(b, make([]byte, data)...)
	return append(b, appendTail(index, n, int64(len(b)))...)
}

func TestContainerRefusesHostileIndexes(t *testing.T) {
	one := func(name string, d dtype, count int64) []byte { return appendEntry(nil, name, d, count, 0) }
	for name, raw := range map[string][]byte{
		"count overflows":   hostile(one("a", float64Type, math.MaxInt64/4), 1, 8),
		"count is negative": hostile(one("a", float64Type, -1), 1, 8),
		"type is unknown":   hostile(one("a", 9, 1), 1, 8),
		"name is empty":     hostile(one("", float32Type, 2), 1, 8),
		"name is not UTF-8": hostile(one("\xff", float32Type, 2), 1, 8),
		"name runs out":     hostile([]byte{0xff, 0x0f, 'a', 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 1, 8),
		"name is too long":  hostile(one(strings.Repeat("a", maxNameBytes+1), float32Type, 2), 1, 8),
		"twice":             hostile(append(one("a", float32Type, 1), one("a", float32Type, 1)...), 2, 8),
		"gap":               hostile(one("a", float32Type, 1), 1, 8),
		"more than is":      hostile(one("a", float32Type, 2), 2, 8),
		"count of sections": hostile(one("a", float32Type, 2), math.MaxInt32, 8),
		"rest in the index": hostile(append(one("a", float32Type, 2), 0), 1, 8),
	} {
		if _, err := openContainer(bytes.NewReader(raw), int64(len(raw)), "x.state"); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func FuzzContainer(f *testing.F) {
	f.Add(pack(f, state(1, 1).Optimizer))
	f.Add(hostile(appendEntry(nil, "a", float64Type, math.MaxInt64/4, 0), 1, 8))
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := openContainer(bytes.NewReader(raw), int64(len(raw)), "x.state")
		if err != nil {
			return
		}
		// What was accepted lies inside the file and can be digested or refused.
		total := int64(headBytes + tailBytes)
		for _, e := range c.entries {
			total += e.count * int64(e.dtype.width())
		}
		if total > int64(len(raw)) {
			t.Fatalf("sections of %d bytes in a file of %d", total, len(raw))
		}
		_ = c.digest(sha256.New())
	})
}

func TestPartialCheckpointsArePassedOver(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, Options{})
	for step := int64(1); step <= 2; step++ {
		if err := s.Save(state(1, step)); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what string) {
		t.Helper()
		c := mustLatest(t, dir)
		if c.Meta.Position.Step != 1 || len(c.PassedOver) != 1 {
			t.Errorf("%s: took step %d, passed over %v", what, c.Meta.Position.Step, c.PassedOver)
		}
	}
	file := filepath.Join(dir, "step2", optimizerFile)
	if err := os.Truncate(file, 20); err != nil {
		t.Fatal(err)
	}
	check("truncated file")
	os.Remove(file)
	check("missing file")
	os.Remove(filepath.Join(dir, "step2", metaFile))
	check("missing metadata")
	os.Remove(filepath.Join(dir, "step1", metaFile))
	if _, err := Latest(dir); err == nil || errors.Is(err, ErrNone) {
		t.Errorf("with only damaged checkpoints the error is %v; a run must not start over silently", err)
	}
	if _, err := Latest(filepath.Join(dir, "nothing")); !errors.Is(err, ErrNone) {
		t.Errorf("an empty folder gave %v", err)
	}
}

func TestFormatVersionIsChecked(t *testing.T) {
	dir := t.TempDir()
	if err := mustOpen(t, dir, Options{}).Save(state(1, 1)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "step1", metaFile)
	raw, _ := os.ReadFile(file)
	raw = bytes.Replace(raw, []byte(`"format": 1`), []byte(`"format": 2`), 1)
	if err := os.WriteFile(file, raw, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(filepath.Join(dir, "step1")); err == nil || !strings.Contains(err.Error(), "format version 2") {
		t.Errorf("error %v", err)
	}
}

func TestMixedFilesAreNoticed(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, Options{})
	for step := int64(1); step <= 2; step++ {
		if err := s.Save(state(1, step)); err != nil {
			t.Fatal(err)
		}
	}
	raw, _ := os.ReadFile(filepath.Join(dir, "step1", optimizerFile))
	if err := os.WriteFile(filepath.Join(dir, "step2", optimizerFile), raw, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := DigestDir(filepath.Join(dir, "step2")); err == nil {
		t.Error("a file of another checkpoint was accepted")
	}
}

// saveOps is the number of operations of a save that succeeds.
func saveOps(t *testing.T) int {
	t.Helper()
	f := newFaultFS()
	s := mustOpen(t, t.TempDir(), Options{FS: f, Keep: 1})
	if err := s.Save(state(1, 1)); err != nil {
		t.Fatal(err)
	}
	f.ops = 0
	if err := s.Save(state(1, 2)); err != nil {
		t.Fatal(err)
	}
	return f.ops
}

// TestA27_FailedSaveKeepsThePrevious lets each single operation of a save fail.
func TestA27_FailedSaveKeepsThePrevious(t *testing.T) {
	for op := 1; op <= saveOps(t); op++ {
		dir, f := t.TempDir(), newFaultFS()
		s := mustOpen(t, dir, Options{FS: f, Keep: 1})
		if err := s.Save(state(1, 1)); err != nil {
			t.Fatal(err)
		}
		f.ops, f.fail = 0, op
		err := s.Save(state(1, 2))
		f.fail = 0
		c := mustLatest(t, dir)
		if c.Meta.Position.Step == 1 && err == nil {
			t.Errorf("operation %d failed, the save did not, and step 2 is not there", op)
		}
		if _, derr := c.Digest(); derr != nil {
			t.Errorf("operation %d: %v", op, derr)
		}
		for _, name := range entries(t, dir) {
			if strings.HasSuffix(name, tmpSuffix) {
				t.Errorf("operation %d left %s behind", op, name)
			}
		}
		if err := mustOpen(t, dir, Options{}).Save(state(1, 3)); err != nil {
			t.Errorf("operation %d: the next save: %v", op, err)
		}
	}
}

// TestA27_KilledSaveKeepsThePrevious stops the process before or after each single
// operation of a save, also of one that replaces the same step.
func TestA27_KilledSaveKeepsThePrevious(t *testing.T) {
	ops := saveOps(t)
	for op := 1; op <= ops+2; op++ {
		for _, after := range []bool{false, true} {
			for _, step := range []int64{1, 2} {
				dir, f := t.TempDir(), newFaultFS()
				s := mustOpen(t, dir, Options{FS: f, Keep: 1})
				if err := s.Save(state(1, 1)); err != nil {
					t.Fatal(err)
				}
				f.ops, f.fail, f.dead, f.after = 0, op, true, after
				_ = s.Save(state(9, step))
				mustOpen(t, dir, Options{})
				c := mustLatest(t, dir)
				d, err := c.Digest()
				if err != nil || d != DigestState(state(1, 1)) && d != DigestState(state(9, step)) {
					t.Errorf("operation %d after %v step %d: %v, digest of neither", op, after, step, err)
				}
				for _, name := range entries(t, dir) {
					if strings.HasSuffix(name, tmpSuffix) || strings.HasSuffix(name, oldSuffix) {
						t.Errorf("operation %d after %v step %d left %s", op, after, step, name)
					}
				}
			}
		}
	}
}

// TestA27_FullDisk runs out of space at growing sizes.
func TestA27_FullDisk(t *testing.T) {
	dir, f := t.TempDir(), newFaultFS()
	s := mustOpen(t, dir, Options{FS: f})
	if err := s.Save(state(1, 1)); err != nil {
		t.Fatal(err)
	}
	before := entries(t, dir)
	for room := int64(0); room < 400; room += 13 {
		f.room = room
		err := s.Save(state(1, 2))
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("room %d: error %v, want ENOSPC", room, err)
		}
		if got := entries(t, dir); !slices.Equal(got, before) {
			t.Fatalf("room %d: the folder holds %v, want %v", room, got, before)
		}
	}
	f.room = -1
	if d, err := DigestDir(dir); err != nil || d != DigestState(state(1, 1)) {
		t.Errorf("the previous checkpoint: %v", err)
	}
	if err := s.Save(state(1, 2)); err != nil {
		t.Errorf("after space was made: %v", err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	if _, err := Open(t.TempDir(), Options{Keep: -1}); err == nil {
		t.Error("a negative keep was accepted")
	}
}

func ExampleDigest_String() {
	d := Digest{Weights: "aa", Optimizer: "bb", Position: "cc", Runtime: "dd", Total: "ee"}
	fmt.Println(d)
	// Output:
	// weights   aa
	// optimizer bb
	// position  cc
	// runtime   dd
	// total     ee
}

func TestDamagedWeightsAreNamed(t *testing.T) {
	dir := t.TempDir()
	st := state(4, 1)
	if err := mustOpen(t, dir, Options{}).Save(st); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "step1", weightsFile)
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// The last tensor by name is model.norm.weight, the first lm_head.weight.
	data := len(raw) - 4*(7+12)
	for i := data; i < len(raw); i++ {
		bad := slices.Clone(raw)
		bad[i] ^= 1 << (i % 8)
		if err := os.WriteFile(file, bad, 0o666); err != nil {
			t.Fatal(err)
		}
		name := "lm_head.weight"
		if i >= data+4*12 {
			name = "model.norm.weight"
		}
		dst := blank(st)
		err := mustLatest(t, dir).Weights(dst.Weights)
		if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), weightsFile) {
			t.Fatalf("byte %d: the error does not name %s and the file: %v", i, name, err)
		}
		if dst.Weights[0].F32[0] != 0 || dst.Weights[1].F32[0] != 0 {
			t.Fatalf("byte %d: damaged weights were loaded", i)
		}
		if _, err := DigestDir(dir); err == nil {
			t.Fatalf("byte %d: digest accepted it", i)
		}
	}
}

func TestForeignWeightsAreListed(t *testing.T) {
	dir := t.TempDir()
	st := state(4, 1)
	if err := mustOpen(t, dir, Options{}).Save(st); err != nil {
		t.Fatal(err)
	}
	dst := blank(st).Weights
	dst[1].Shape = []int{3, 4} // the same number of elements
	dst[0].Name = "model.other.weight"
	err := mustLatest(t, dir).Weights(dst)
	var m *MismatchError
	if !errors.As(err, &m) {
		t.Fatalf("error %v", err)
	}
	if !slices.Equal(m.Missing, []string{"model.other.weight"}) || !slices.Equal(m.Unexpected, []string{"model.norm.weight"}) ||
		!slices.Equal(m.Reshaped, []string{"lm_head.weight: [4 3] in the file, [3 4] in the run"}) {
		t.Errorf("listed %+v", m)
	}
}

func TestFloat64WeightsKeepTheirType(t *testing.T) {
	dir := t.TempDir()
	st := State{Weights: []Tensor{{Section: param.Section{Name: "w", F64: []float64{1, math.Pi, math.Inf(-1)}}, Shape: []int{3}}}}
	if err := mustOpen(t, dir, Options{}).Save(st); err != nil {
		t.Fatal(err)
	}
	dst := []Tensor{{Section: param.Section{Name: "w", F64: make([]float64, 3)}, Shape: []int{3}}}
	if err := mustLatest(t, dir).Weights(dst); err != nil || !slices.Equal(dst[0].F64, st.Weights[0].F64) {
		t.Errorf("read %v, %v", dst[0].F64, err)
	}
	single := []Tensor{{Section: param.Section{Name: "w", F32: make([]float32, 3)}, Shape: []int{3}}}
	if err := mustLatest(t, dir).Weights(single); err == nil || !strings.Contains(err.Error(), "F64[3] in the file, F32[3] in the run") {
		t.Errorf("float64 into float32 gave %v", err)
	}
}
