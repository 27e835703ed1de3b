package nvmepage_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/asteria-runtime/asteria/nvmepage"
)

func dataFiles(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "asteria-pages-*", "data"))
	must(t, err)
	return files
}

// begin opens a store and saves n objects.
func begin(t *testing.T, seed uint64, n int, paths ...string) *nvmepage.Store {
	t.Helper()
	s, err := nvmepage.Open(nvmepage.Options{Paths: paths, Align: 4096})
	must(t, err)
	for id := range uint64(n) {
		must(t, s.Save(t.Context(), id, fill(seed<<8|id, 5000)))
	}
	return s
}

// loadAll checks n objects that begin saved.
func loadAll(t *testing.T, s *nvmepage.Store, seed uint64, n int) {
	t.Helper()
	if st := s.Stats(); st.Recovered != n || st.Torn != 0 {
		t.Errorf("stats %+v, want %d objects recovered", st, n)
	}
	for id := range uint64(n) {
		load(t, s, id, fill(seed<<8|id, 5000))
	}
}

func age(t *testing.T, at time.Time, files ...string) {
	t.Helper()
	for _, f := range files {
		must(t, os.Chtimes(f, at, at))
	}
}

// Two stores die; one had both paths, the other one of them.
func TestRecoveryNeverMixesStores(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		wide    time.Duration // when the store over both paths wrote last; the other: 1 s
		seed    uint64
		objects int
	}{
		"the store over both paths is younger": {2 * time.Second, 1, 8},
		"the store in one path is younger":     {0, 2, 3},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := t.TempDir(), t.TempDir()
			wide := begin(t, 1, 8, a, b)
			wideFiles := append(dataFiles(t, a), dataFiles(t, b)...)
			narrow := begin(t, 2, 3, b)
			must(t, wide.Abandon(), narrow.Abandon())
			age(t, now.Add(time.Second), dataFiles(t, b)...)
			age(t, now.Add(c.wide), wideFiles...)
			s := open(t, nvmepage.Options{Paths: []string{b, a}, Align: 4096, Recover: true})
			loadAll(t, s, c.seed, c.objects)
			if n := len(dataFiles(t, a)) + len(dataFiles(t, b)); n != 2 {
				t.Errorf("%d data files, want one in each path", n)
			}
		})
	}
}

// A page that is whole but not this store's, or not at its own place, is no object:
// it may lie in an extent that was another's, or in the payload of a torn object.
func TestRecoveryTakesNoStrayPages(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	s, stranger := begin(t, 1, 2, dir), begin(t, 2, 6, other)
	file := dataFiles(t, dir)[0]
	own, err := os.ReadFile(file)
	must(t, err)
	strange, err := os.ReadFile(dataFiles(t, other)[0])
	must(t, err)
	must(t, s.Abandon(), stranger.Abandon())
	const extent = 3 * 4096 // of an object: a header and two pages
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	must(t, err)
	_, err = f.WriteAt(strange[5*extent:6*extent], 5*extent) // at its own place, with a higher version
	must(t, err)
	_, err = f.WriteAt(own[:extent], 8*extent)
	must(t, err, f.Close())
	again := open(t, nvmepage.Options{Paths: []string{dir}, Align: 4096, Recover: true})
	loadAll(t, again, 1, 2)
	if st := again.Stats(); st.Foreign != 2 {
		t.Errorf("%d foreign pages seen, want 2", st.Foreign)
	}
}

func TestRecoveryRefusesAStoreThatLacksAPath(t *testing.T) {
	a, b, c := t.TempDir(), t.TempDir(), t.TempDir()
	must(t, begin(t, 1, 8, a, b).Abandon())
	for range 2 { // a refusal leaves everything as it was
		_, err := nvmepage.Open(nvmepage.Options{Paths: []string{c, a}, Align: 4096, Recover: true})
		if !errors.Is(err, nvmepage.ErrIncomplete) {
			t.Fatalf("err = %v, want ErrIncomplete", err)
		}
	}
	if left, _ := os.ReadDir(c); len(left) != 0 {
		t.Errorf("left behind in the path that was new: %v", left)
	}
	s := open(t, nvmepage.Options{Paths: []string{c, b, a}, Align: 4096, Recover: true})
	loadAll(t, s, 1, 8)
	for id := range uint64(8) {
		save(t, s, id, fill(3<<8|id, 5000))
	}
	if len(dataFiles(t, c)) != 1 {
		t.Error("the path that was added is not used")
	}
}

func TestOneFolderUnderTwoNamesIsRefused(t *testing.T) {
	dir := t.TempDir()
	if _, err := nvmepage.Open(nvmepage.Options{Paths: []string{dir, dir + "/../" + filepath.Base(dir)}}); err == nil {
		t.Error("one folder was taken twice")
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}
