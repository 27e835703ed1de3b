package nvmepage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/asteria-runtime/asteria/nvmepage"
	"github.com/asteria-runtime/asteria/nvmepage/nvmetest"
)

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// open opens a store in a folder of its own and closes it with the test.
func open(t *testing.T, opts nvmepage.Options) *nvmepage.Store {
	t.Helper()
	if opts.Paths == nil {
		opts.Paths = []string{t.TempDir()}
	}
	s, err := nvmepage.Open(opts)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

func fill(seed uint64, n int) []byte {
	b := make([]byte, n)
	rng := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)})
	_, _ = rng.Read(b)
	return b
}

func load(t *testing.T, s *nvmepage.Store, id uint64, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	must(t, s.Load(t.Context(), id, got))
	if !bytes.Equal(got, want) {
		t.Fatalf("object %d of %d bytes came back changed", id, len(want))
	}
}

func save(t *testing.T, s *nvmepage.Store, id uint64, data []byte) {
	t.Helper()
	must(t, s.Save(t.Context(), id, data))
}

// backEnds are the ways in which bytes reach a drive.
func backEnds() map[string]nvmepage.Options {
	m := map[string]nvmepage.Options{
		"pool":           {Engine: nvmepage.Pool},
		"pool buffered":  {Engine: nvmepage.Pool, Buffered: true},
		"io_uring":       {Engine: nvmepage.Uring},
		"uring buffered": {Engine: nvmepage.Uring, Buffered: true},
		"injected file":  {Open: (&nvmetest.Faults{}).Open},
	}
	for _, align := range []int{512, 4096, 65536} {
		m[fmt.Sprint("aligned to ", align)] = nvmepage.Options{Align: align, Open: (&nvmetest.Faults{}).Open}
	}
	m["aligned to 65536, io_uring"] = nvmepage.Options{Align: 65536, Engine: nvmepage.Uring}
	return m
}

// A20: lengths that are not multiples of the sector.
func TestA20_EveryLengthComesBackThroughEveryBackEnd(t *testing.T) {
	sizes := []int{1, 511, 512, 513, 4095, 4097, 1<<20 + 1, 28824000}
	for name, opts := range backEnds() {
		t.Run(name, func(t *testing.T) {
			s := open(t, opts)
			for i, n := range sizes {
				save(t, s, uint64(i), fill(uint64(n), n))
			}
			for i, n := range sizes {
				load(t, s, uint64(i), fill(uint64(n), n))
				if got, err := s.Len(uint64(i)); err != nil || got != int64(n) {
					t.Errorf("Len = %d, %v, want %d", got, err, n)
				}
			}
			if st := s.Stats(); st.Writes != int64(len(sizes)) || st.Corrupt != 0 || st.Failed != 0 {
				t.Errorf("stats %+v", st)
			}
		})
	}
}

// A21: a full drive, an I/O error, a short write are seen when they happen, and the
// previous version stays.
func TestA21_AFailedWriteIsSeenAtOnceAndThePreviousVersionStays(t *testing.T) {
	cases := map[string]struct {
		faults *nvmetest.Faults
		want   error
	}{
		"EIO":    {&nvmetest.Faults{Fail: func(op nvmetest.Op) error { return failAfter(op, 6, syscall.EIO) }}, syscall.EIO},
		"short":  {&nvmetest.Faults{Short: func(op nvmetest.Op) int64 { return shortAfter(op, 6) }}, io.ErrShortWrite},
		"ENOSPC": {&nvmetest.Faults{Space: 64 << 10}, nvmepage.ErrFull},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := open(t, nvmepage.Options{Open: c.faults.Open, Align: 4096, Chunk: 8192})
			first := fill(1, 20000)
			save(t, s, 1, first)
			err := s.Save(t.Context(), 1, fill(2, 60000))
			if !errors.Is(err, c.want) {
				t.Fatalf("err = %v, want %v", err, c.want)
			}
			load(t, s, 1, first)
			if st := s.Stats(); st.Failed != 1 || st.Objects != 1 {
				t.Errorf("stats %+v", st)
			}
		})
	}
}

func failAfter(op nvmetest.Op, seq int, err error) error {
	if op.Kind == "write" && op.Seq >= seq {
		return err
	}
	return nil
}

func shortAfter(op nvmetest.Op, seq int) int64 {
	if op.Kind == "write" && op.Seq >= seq {
		return op.N / 2
	}
	return op.N
}

// The same on a real full file system, where the test may mount one.
func TestA21_ARealFullFileSystem(t *testing.T) {
	dir := t.TempDir()
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		t.Skip("mounting a tmpfs needs Linux and root")
	}
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("mount tmpfs: %v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("umount", dir).Run() })
	s, err := nvmepage.Open(nvmepage.Options{Paths: []string{dir}})
	must(t, err)
	var kept int
	for i := range 12 { // twelve objects of a MiB in 8 MiB
		err := s.Save(t.Context(), uint64(i), fill(uint64(i), 1<<20))
		if err == nil {
			kept++
			continue
		}
		if !errors.Is(err, nvmepage.ErrFull) {
			t.Fatalf("object %d: %v, want ErrFull", i, err)
		}
	}
	if kept < 5 || kept > 7 {
		t.Errorf("%d objects of 1 MiB were kept in 8 MiB", kept)
	}
	for i := range kept {
		load(t, s, uint64(i), fill(uint64(i), 1<<20))
	}
	must(t, s.Close())
}

func TestWhatIsOnDiskIsCheckedWhenRead(t *testing.T) {
	flip := func(page bool) func(nvmetest.Op, []byte) {
		return func(op nvmetest.Op, data []byte) {
			if (op.N == 4096 && op.Off%8192 == 0) == page {
				data[20] ^= 1
			}
		}
	}
	for name, corrupt := range map[string]func(nvmetest.Op, []byte){"header": flip(true), "payload": flip(false)} {
		t.Run(name, func(t *testing.T) {
			f := &nvmetest.Faults{}
			s := open(t, nvmepage.Options{Open: f.Open, Align: 4096})
			save(t, s, 7, fill(7, 10000))
			f.Corrupt = corrupt
			err := s.Load(t.Context(), 7, make([]byte, 10000))
			var bad *nvmepage.CorruptError
			if !errors.Is(err, nvmepage.ErrCorrupt) || !errors.As(err, &bad) || bad.ID != 7 || !strings.Contains(bad.Error(), "data") {
				t.Fatalf("err = %v", err)
			}
			f.Corrupt = nil
			load(t, s, 7, fill(7, 10000))
		})
	}
}

func TestACutFileIsAnErrorNotData(t *testing.T) {
	for _, engine := range []nvmepage.Engine{nvmepage.Pool, nvmepage.Uring} {
		for _, length := range []int{100000, 3 << 20} { // one request, and several
			t.Run(fmt.Sprint(engine, " ", length), func(t *testing.T) {
				dir := t.TempDir()
				s := open(t, nvmepage.Options{Paths: []string{dir}, Engine: engine})
				save(t, s, 1, fill(1, length))
				files, err := filepath.Glob(filepath.Join(dir, "asteria-pages-*", "data"))
				if err != nil || len(files) != 1 {
					t.Fatalf("data files %v, %v", files, err)
				}
				must(t, os.Truncate(files[0], 8192))
				if err := s.Load(t.Context(), 1, make([]byte, length)); err == nil || !strings.Contains(err.Error(), files[0]) {
					t.Fatalf("err = %v, want it to name %s", err, files[0])
				}
			})
		}
	}
}

// Requests beyond the depth queue; callers that wait serve each other, and one that
// gives up does not take the others' completions with it.
func TestManyCallersShareAShallowEngine(t *testing.T) {
	for _, engine := range []nvmepage.Engine{nvmepage.Pool, nvmepage.Uring} {
		t.Run(engine.String(), func(t *testing.T) {
			s := open(t, nvmepage.Options{Engine: engine, Depth: 2, Staging: 1, Chunk: 64 << 10})
			var callers sync.WaitGroup
			for c := range uint64(24) {
				callers.Go(func() { shallowCaller(t, s, c) })
			}
			callers.Wait()
			if st := s.Stats(); st.Corrupt != 0 || st.Objects != 24 {
				t.Errorf("stats %+v", st)
			}
		})
	}
}

func shallowCaller(t *testing.T, s *nvmepage.Store, c uint64) {
	g := rand.New(rand.NewPCG(c, 11))
	data := nvmepage.Aligned(256<<10, 4096)
	got := nvmepage.Aligned(256<<10+int(c%2), 4096)[:256<<10] // half of them by staging
	var last []byte
	for round := range uint64(12) {
		copy(data, fill(c<<8|round, len(data)))
		ctx, cancel := context.WithCancel(t.Context())
		if round > 0 && g.IntN(4) == 0 {
			cancel()
		}
		err := s.Save(ctx, c, data[round%2*512:])
		cancel()
		if err == nil {
			last = bytes.Clone(data[round%2*512:])
		} else if !errors.Is(err, context.Canceled) {
			t.Errorf("caller %d, round %d: %v", c, round, err)
		}
		if err := s.Load(t.Context(), c, got[:len(last)]); err != nil || !bytes.Equal(got[:len(last)], last) {
			t.Errorf("caller %d, round %d: changed, or %v", c, round, err)
		}
	}
}

func TestErrorsNameWhatIsWrong(t *testing.T) {
	s := open(t, nvmepage.Options{})
	save(t, s, 5, fill(5, 100))
	if err := s.Load(t.Context(), 6, nil); !errors.Is(err, nvmepage.ErrNotFound) || !strings.Contains(err.Error(), "6") {
		t.Errorf("missing object: %v", err)
	}
	if err := s.Load(t.Context(), 5, make([]byte, 99)); !errors.Is(err, nvmepage.ErrLength) {
		t.Errorf("wrong length: %v", err)
	}
	if err := s.Save(t.Context(), 5, nil); !errors.Is(err, nvmepage.ErrLength) {
		t.Errorf("empty object: %v", err)
	}
	must(t, s.Drop(5), s.Drop(5))
	if _, err := s.Len(5); !errors.Is(err, nvmepage.ErrNotFound) {
		t.Errorf("dropped object: %v", err)
	}
	err := nvmepage.Options{Align: 3000, Depth: -1, Engine: 9}.Validate()
	for _, want := range []string{"no paths", "alignment 3000", "depth -1", "engine 9"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Validate() = %v, want it to name %q", err, want)
		}
	}
	dir := t.TempDir()
	if _, err := nvmepage.Open(nvmepage.Options{Paths: []string{dir, dir}}); err == nil {
		t.Error("a path was taken twice")
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("a failed Open left %v behind", left)
	}
	if _, err := nvmepage.Open(nvmepage.Options{Paths: []string{filepath.Join(dir, "none")}}); err == nil {
		t.Error("a missing folder was accepted")
	}
}

func TestAfterCloseNothingWorksAndNothingIsLeft(t *testing.T) {
	dir := t.TempDir()
	before := runtime.NumGoroutine()
	s, err := nvmepage.Open(nvmepage.Options{Paths: []string{dir}})
	must(t, err)
	save(t, s, 1, fill(1, 10))
	must(t, s.Close(), s.Close())
	if err := s.Save(t.Context(), 1, fill(1, 10)); !errors.Is(err, nvmepage.ErrClosed) {
		t.Errorf("save: %v", err)
	}
	if err := s.Load(t.Context(), 1, make([]byte, 10)); !errors.Is(err, nvmepage.ErrClosed) {
		t.Errorf("load: %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	for range 100 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Errorf("%d goroutines before, %d after", before, runtime.NumGoroutine())
}

func TestTheCapacityIsKeptAndSpaceIsReused(t *testing.T) {
	s := open(t, nvmepage.Options{Capacity: 1 << 20, Align: 4096, Open: (&nvmetest.Faults{}).Open})
	var err error
	n := 0
	for ; err == nil; n++ {
		err = s.Save(t.Context(), uint64(n), fill(1, 100000))
	}
	if !errors.Is(err, nvmepage.ErrFull) || s.Stats().Allocated > 1<<20 {
		t.Fatalf("%v, %d bytes allocated", err, s.Stats().Allocated)
	}
	must(t, s.Drop(0))
	for range 50 {
		save(t, s, 0, fill(2, 100000))
		must(t, s.Drop(0))
	}
	if st := s.Stats(); st.Objects != n-2 || st.Allocated > 1<<20 {
		t.Errorf("stats %+v", st)
	}
}

func TestObjectsAreSpreadOverPaths(t *testing.T) {
	dirs := []string{t.TempDir(), t.TempDir()}
	s := open(t, nvmepage.Options{Paths: dirs})
	for i := range uint64(8) {
		save(t, s, i, fill(i, 1<<16))
	}
	for i := range uint64(8) {
		load(t, s, i, fill(i, 1<<16))
	}
	for _, dir := range dirs {
		files, _ := filepath.Glob(filepath.Join(dir, "*", "data"))
		if info, err := os.Stat(files[0]); err != nil || info.Size() == 0 {
			t.Errorf("%s holds nothing: %v", dir, err)
		}
	}
}

func TestBatchesNeedFewBuffers(t *testing.T) {
	s := open(t, nvmepage.Options{Depth: 3, Staging: 2, Chunk: 4096})
	items, back := make([]nvmepage.Item, 40), make([]nvmepage.Item, 40)
	for i := range items {
		items[i] = nvmepage.Item{ID: uint64(i), Data: fill(uint64(i), 30000)[1:]} // not aligned
		back[i] = nvmepage.Item{ID: uint64(i), Data: make([]byte, 29999)}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must(t, s.SaveAll(ctx, items), s.LoadAll(ctx, back))
	for i := range items {
		if !bytes.Equal(items[i].Data, back[i].Data) {
			t.Fatalf("object %d came back changed", i)
		}
	}
	if peak := s.Stats().StagingPeak; peak < 1 || peak > 2 {
		t.Errorf("%d staging buffers of 2 were in use", peak)
	}
}

func TestRecoveryFindsTheNewestCompleteVersions(t *testing.T) {
	dir := t.TempDir()
	s, err := nvmepage.Open(nvmepage.Options{Paths: []string{dir}})
	must(t, err)
	for round := range uint64(3) {
		for id := range uint64(10) {
			must(t, s.Save(t.Context(), id, fill(round<<8|id, 5000+int(id)*777)))
		}
	}
	must(t, s.Drop(3), s.Abandon())
	again := open(t, nvmepage.Options{Paths: []string{dir}, Recover: true})
	if got := again.Stats().Recovered; got != 9 {
		t.Errorf("%d objects recovered, want 9", got)
	}
	for id := range uint64(10) {
		if id == 3 {
			continue
		}
		load(t, again, id, fill(2<<8|id, 5000+int(id)*777))
	}
	save(t, again, 3, fill(99, 100))
	load(t, again, 3, fill(99, 100))
}

func TestALiveNeighbourIsNeverTouched(t *testing.T) {
	dir := t.TempDir()
	first := open(t, nvmepage.Options{Paths: []string{dir}})
	save(t, first, 1, fill(1, 1000))
	dead, err := nvmepage.Open(nvmepage.Options{Paths: []string{dir}})
	must(t, err)
	must(t, dead.Abandon())
	second := open(t, nvmepage.Options{Paths: []string{dir}, Recover: true})
	third := open(t, nvmepage.Options{Paths: []string{dir}})
	if second.Stats().Recovered != 0 || third.Stats().Reclaimed != 0 {
		t.Errorf("second %+v, third %+v", second.Stats(), third.Stats())
	}
	load(t, first, 1, fill(1, 1000))
}

// TestKilledStores kills a child in the middle of its saves, again and again. What
// the child had confirmed must be there, whole; left-overs must not pile up.
func TestKilledStores(t *testing.T) {
	if dir := os.Getenv("NVMEPAGE_CHILD"); dir != "" {
		childSaves(dir)
		return
	}
	rounds := 4
	if os.Getenv("ASTERIA_LONG") != "" {
		rounds = 50
	}
	dir := t.TempDir()
	g := rand.New(rand.NewPCG(1, 2))
	for range rounds {
		confirmed := killChild(t, dir, time.Duration(5+g.IntN(60))*time.Millisecond)
		s, err := nvmepage.Open(nvmepage.Options{Paths: []string{dir}, Recover: true})
		must(t, err)
		for id, version := range confirmed {
			n, err := s.Len(id)
			if err != nil {
				t.Fatalf("object %d, version %d was confirmed and is gone: %v", id, version, err)
			}
			got := make([]byte, n)
			must(t, s.Load(t.Context(), id, got))
			if v := uint64(got[0]) | uint64(got[1])<<8; v < version && version-v < 1<<15 {
				t.Fatalf("object %d: version %d on disk, %d was confirmed", id, v, version)
			}
		}
		must(t, s.Close())
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// killChild runs a child for a while and returns what it said was confirmed.
func killChild(t *testing.T, dir string, life time.Duration) map[uint64]uint64 {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	cmd := exec.Command(exe, "-test.run", "^TestKilledStores$")
	cmd.Env = append(os.Environ(), "NVMEPAGE_CHILD="+dir)
	var out bytes.Buffer
	cmd.Stdout = &out
	must(t, cmd.Start())
	time.Sleep(life)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	confirmed := map[uint64]uint64{}
	for line := range strings.Lines(out.String()) {
		var id, version uint64
		if n, _ := fmt.Sscanf(line, "confirmed %d %d\n", &id, &version); n == 2 && strings.HasSuffix(line, "\n") {
			confirmed[id] = version
		}
	}
	return confirmed
}

func childSaves(dir string) {
	s, err := nvmepage.Open(nvmepage.Options{Paths: []string{dir}})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for v := uint64(0); ; v++ {
		id := v % 5
		data := fill(v, 3000+int(v%7)*4000)
		data[0], data[1] = byte(v), byte(v>>8)
		if err := s.Save(context.Background(), id, data); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Printf("confirmed %d %d\n", id, v&0xffff)
	}
}

// TestRandomOperationsAgainstAModel compares a store under random faults with a map.
func TestRandomOperationsAgainstAModel(t *testing.T) {
	for seed := range uint64(20) {
		g := rand.New(rand.NewPCG(seed, 4))
		faults := &nvmetest.Faults{Space: 1 << 20}
		if seed%2 == 1 {
			fg := rand.New(rand.NewPCG(seed, 5))
			faults.Fail = func(op nvmetest.Op) error {
				if fg.IntN(10) == 0 && op.Kind == "write" {
					return syscall.EIO
				}
				return nil
			}
		}
		s := open(t, nvmepage.Options{Open: faults.Open, Align: 512 << g.IntN(4), Chunk: 8192, Depth: 1 + g.IntN(8)})
		model := map[uint64][]byte{}
		for range 300 {
			step(t, seed, g, s, model)
		}
		for id, want := range model {
			load(t, s, id, want)
		}
	}
}

func step(t *testing.T, seed uint64, g *rand.Rand, s *nvmepage.Store, model map[uint64][]byte) {
	t.Helper()
	id := g.Uint64N(12)
	switch g.IntN(4) {
	case 0, 1:
		data := fill(g.Uint64(), 1+g.IntN(60000))
		if err := s.Save(t.Context(), id, data); err == nil {
			model[id] = data
		} else if !errors.Is(err, nvmepage.ErrFull) && !errors.Is(err, syscall.EIO) {
			t.Fatalf("seed %d: save: %v", seed, err)
		}
	case 2:
		if want, ok := model[id]; ok {
			load(t, s, id, want)
		} else if err := s.Load(t.Context(), id, nil); !errors.Is(err, nvmepage.ErrNotFound) {
			t.Fatalf("seed %d: load of nothing: %v", seed, err)
		}
	case 3:
		if err := s.Drop(id); err != nil && !errors.Is(err, syscall.EIO) {
			t.Fatalf("seed %d: drop: %v", seed, err)
		}
		delete(model, id)
	}
}

func TestHammer(t *testing.T) {
	s := open(t, nvmepage.Options{Depth: 4, Staging: 2, Chunk: 4096})
	var wg sync.WaitGroup
	for w := range uint64(6) {
		wg.Go(func() {
			g := rand.New(rand.NewPCG(w, 7))
			for round := range uint64(30) {
				id := w<<8 | g.Uint64N(3)
				data := fill(w<<16|round, 1+g.IntN(20000))
				if err := s.Save(t.Context(), id, data); err != nil {
					t.Error(err)
					return
				}
				got := make([]byte, len(data))
				if err := s.Load(t.Context(), id, got); err != nil || !bytes.Equal(got, data) {
					t.Errorf("worker %d, round %d: changed, or %v", w, round, err)
				}
				if err := s.Save(t.Context(), 1<<40, data); err != nil { // all fight for one object
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func TestPreflightMeasuresAndLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	b, err := nvmepage.Preflight(t.Context(), dir, 16<<20, 2)
	must(t, err)
	if b.Read <= 0 || b.Write <= 0 || b.Engine == "" {
		t.Errorf("%+v", b)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestOneLineSaysThatDirectIOWasRefused(t *testing.T) {
	var out strings.Builder
	refuse := func(name string, direct bool) (nvmepage.File, error) {
		if direct {
			return nil, syscall.EINVAL
		}
		return nvmepage.OpenFile(name, false)
	}
	s := open(t, nvmepage.Options{Open: refuse, Logger: slog.New(slog.NewTextHandler(&out, nil))})
	save(t, s, 1, fill(1, 5000))
	load(t, s, 1, fill(1, 5000))
	if s.Stats().Direct || strings.Count(out.String(), "direct I/O refused") != 1 {
		t.Errorf("stats %+v, log:\n%s", s.Stats(), out.String())
	}
}
