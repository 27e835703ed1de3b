package nvmepage_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/asteria-runtime/asteria/nvmepage"
	"github.com/asteria-runtime/asteria/nvmepage/nvmetest"
)

// wanted is what a recovery may find of one object: any of these contents; nil
// stands for none.
type wanted [][]byte

func (w wanted) allows(got []byte) bool {
	for _, c := range w {
		if (c == nil) == (got == nil) && bytes.Equal(c, got) {
			return true
		}
	}
	return false
}

// A store crashes in the middle of a write, again and again: each object comes back in
// its last confirmed state or in that of the operation that was cut off, never in an
// older one, also when it was dropped.
func TestRandomCrashes(t *testing.T) {
	const lives = 4
	for seed := range uint64(30) {
		g := rand.New(rand.NewPCG(seed, 77))
		dir := t.TempDir()
		model := map[uint64]wanted{}
		for range lives {
			crash(t, seed, g, dir, model)
			if t.Failed() {
				return
			}
		}
	}
}

// crash recovers a store, compares it with the model, and works on it until a write
// at random is torn and nothing else reaches the drive.
func crash(t *testing.T, seed uint64, g *rand.Rand, dir string, model map[uint64]wanted) {
	t.Helper()
	var armed, dead atomic.Bool
	left := 1 + g.IntN(60)
	faults := &nvmetest.Faults{}
	faults.Fail = func(op nvmetest.Op) error {
		if dead.Load() {
			return syscall.EIO
		}
		return nil
	}
	faults.Short = func(op nvmetest.Op) int64 {
		if !armed.Load() || op.Kind != "write" {
			return op.N
		}
		if left--; left > 0 {
			return op.N
		}
		dead.Store(true)
		return g.Int64N(op.N + 1)
	}
	s, err := nvmepage.Open(nvmepage.Options{
		Paths: []string{dir}, Align: 512, Chunk: 4096, Recover: true, Open: faults.Open,
	})
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	for id := range uint64(crashObjects) {
		got := contents(t, seed, s, id)
		if w, ok := model[id]; ok && !w.allows(got) || !ok && got != nil {
			t.Fatalf("seed %d: object %d came back with %d bytes; allowed were %d states", seed, id, len(got), len(w))
		}
		model[id] = wanted{got}
	}
	armed.Store(true)
	for !dead.Load() {
		work(t, seed, g, s, model)
	}
	if err := s.Abandon(); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
}

const crashObjects = 5

// contents returns what a store has of an object, nil for nothing.
func contents(t *testing.T, seed uint64, s *nvmepage.Store, id uint64) []byte {
	t.Helper()
	n, err := s.Len(id)
	if errors.Is(err, nvmepage.ErrNotFound) {
		return nil
	}
	got := make([]byte, n)
	if err = errors.Join(err, s.Load(t.Context(), id, got)); err != nil {
		t.Fatalf("seed %d: object %d: %v", seed, id, err)
	}
	return got
}

// work saves or drops one object and notes what may be found of it.
func work(t *testing.T, seed uint64, g *rand.Rand, s *nvmepage.Store, model map[uint64]wanted) {
	t.Helper()
	id := g.Uint64N(crashObjects)
	var next []byte
	var err error
	if g.IntN(5) < 2 {
		err = s.Drop(id)
	} else {
		next = fill(g.Uint64N(1<<20), 1+g.IntN(9000))
		err = s.Save(t.Context(), id, next)
	}
	switch {
	case err == nil:
		model[id] = wanted{next}
	case errors.Is(err, syscall.EIO) || bytes.Contains([]byte(err.Error()), []byte("short write")):
		model[id] = append(model[id], next)
	default:
		t.Fatalf("seed %d: object %d: %v", seed, id, err)
	}
}

// Many objects that were saved twice and dropped fill several pages of records; a torn
// record loses none that was confirmed.
func TestDroppedObjectsStayDropped(t *testing.T) {
	const objects = 100 // at 512 bytes a page holds 30 records
	dir := t.TempDir()
	opts := nvmepage.Options{Paths: []string{dir}, Align: 512, Recover: true}
	s, err := nvmepage.Open(opts)
	must(t, err)
	for id := range uint64(objects) {
		save(t, s, id, fill(id, 700))
		save(t, s, id, fill(id+1, 700))
		must(t, s.Drop(id))
	}
	save(t, s, 7, fill(9, 700))
	must(t, s.Sync(), s.Abandon())
	records := dropFile(t, dir)
	text, err := os.ReadFile(records)
	must(t, err)
	if len(text) != 4*2*512 {
		t.Fatalf("%d bytes of records, want 4 pages that stand twice", len(text))
	}
	text[512+40] ^= 1 // the older state of the first page, where the next write would go
	must(t, os.WriteFile(records, text, 0o600))

	s, err = nvmepage.Open(opts)
	must(t, err)
	if ids := s.IDs(); len(ids) != 1 || ids[0] != 7 {
		t.Errorf("recovered %v, want object 7 alone", ids)
	}
	load(t, s, 7, fill(9, 700))
	must(t, s.Drop(7), s.Abandon())

	s, err = nvmepage.Open(opts)
	must(t, err)
	if ids := s.IDs(); len(ids) != 0 {
		t.Errorf("recovered %v, want nothing", ids)
	}
	must(t, s.Abandon())

	text[40] ^= 1 // no state of the first page is whole
	must(t, os.WriteFile(records, text, 0o600))
	if _, err := nvmepage.Open(opts); !errors.Is(err, nvmepage.ErrCorrupt) || !strings.Contains(err.Error(), records) {
		t.Errorf("records that were confirmed are gone: %v, want ErrCorrupt that names %s", err, records)
	}
}

func dropFile(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "asteria-pages-*", "dropped"))
	must(t, err)
	if len(files) != 1 {
		t.Fatalf("files of records: %v, want one", files)
	}
	return files[0]
}
