package energy

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/fstest"
)

// tree is a powercap folder; every counter is the text of one file.
type tree fstest.MapFS

func (t tree) zone(dir, name, energy, wrap string) {
	for file, text := range map[string]string{"name": name, "energy_uj": energy, "max_energy_range_uj": wrap} {
		if text != "" {
			t[powercap+"/"+dir+"/"+file] = &fstest.MapFile{Data: []byte(text + "\n"), Mode: 0o444}
		}
	}
}

func (t tree) set(dir string, microjoules uint64) {
	t[powercap+"/"+dir+"/energy_uj"].Data = fmt.Appendf(nil, "%d\n", microjoules)
}

// live is a tree whose open files show later contents, as those of sysfs do.
type live struct {
	fstest.MapFS
	denied string // suffix of the file that may not be read
}

func (l live) Open(name string) (fs.File, error) {
	if l.denied != "" && strings.HasSuffix(name, l.denied) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	f, err := l.MapFS.Open(name)
	if err != nil || !strings.HasSuffix(name, "energy_uj") || strings.HasSuffix(name, "max_energy_range_uj") {
		return f, err
	}
	return liveFile{f, l.MapFS[name]}, nil
}

type liveFile struct {
	fs.File
	now *fstest.MapFile
}

func (f liveFile) ReadAt(b []byte, off int64) (int, error) { return copy(b, f.now.Data[off:]), nil }

func machine() (tree, live) {
	t := tree{}
	t.zone("intel-rapl:0", "package-0", "1000000", "262143328850")
	t.zone("intel-rapl:0:0", "core", "5", "262143328850")
	t.zone("intel-rapl:0:1", "dram", "2000000", "65712999613")
	t.zone("intel-rapl:1", "package-1", "0", "262143328850")
	t.zone("intel-rapl:2", "psys", "7", "262143328850")
	t.zone("intel-rapl-mmio:0", "package-0", "1000000", "262143328850")
	return t, live{MapFS: fstest.MapFS(t)}
}

func TestZonesAreAddedByDomain(t *testing.T) {
	tr, fsys := machine()
	m := Open(Options{FS: fsys, NoGPUs: true})
	defer m.Close()
	var names []string
	for _, s := range m.Sources() {
		names = append(names, s.Domain.String()+" "+s.Name)
	}
	if got := strings.Join(names, ", "); got != "package package-0, dram dram, package package-1" {
		t.Errorf("sources %q", got)
	}
	tr.set("intel-rapl:0", 1000000+2500000)
	tr.set("intel-rapl:1", 500000)
	tr.set("intel-rapl:0:1", 2000000+125000)
	want := Totals{Joules: [Domains]float64{3, 0.125, 0}, Has: [Domains]bool{true, true, false}}
	for range 2 { // a second look at the same counters adds nothing
		if got := m.Sample(); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	if n := testing.AllocsPerRun(20, func() { m.Sample() }); n != 0 {
		t.Errorf("%v allocations a sample", n)
	}
}

// A counter that goes back to zero loses nothing, at any place of the wrap.
func TestCountersWrapAround(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		tr, fsys := machine()
		wrap := 1_000_000 + rng.Uint64N(1<<40)
		at := rng.Uint64N(wrap)
		tr.zone("intel-rapl:0", "package-0", fmt.Sprint(at), fmt.Sprint(wrap))
		m := Open(Options{FS: fsys, NoGPUs: true})
		used := uint64(0)
		for range 20 {
			d := rng.Uint64N(wrap)
			used += d
			if at += d; at > wrap {
				at -= wrap
			}
			tr.set("intel-rapl:0", at)
			m.Sample()
		}
		got := m.Sample().Joules[Package]
		if math.Abs(got-float64(used)/1e6) > 1e-9*float64(used)/1e6 {
			t.Errorf("seed %d, wrap %d: %v J, want %v", seed, wrap, got, float64(used)/1e6)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Without the range a step back is no energy; nothing is made up.
func TestAWrapOfUnknownRangeCountsNothing(t *testing.T) {
	for _, c := range []struct{ last, now, wrap, want uint64 }{
		{10, 15, 0, 5}, {10, 5, 0, 0}, {10, 5, 9, 0}, {10, 5, 10, 5}, {10, 10, 100, 0}, {0, math.MaxUint64, 0, math.MaxUint64},
	} {
		if got := since(c.last, c.now, c.wrap); got != c.want {
			t.Errorf("since(%d, %d, %d) = %d, want %d", c.last, c.now, c.wrap, got, c.want)
		}
	}
}

func TestWhatCannotBeReadIsAbsent(t *testing.T) {
	if m := Open(Options{FS: fstest.MapFS{}, NoGPUs: true}); len(m.Sources())+len(m.Refused()) != 0 || m.Sample() != (Totals{}) {
		t.Errorf("an empty machine has %v, refused %v", m.Sources(), m.Refused())
	}
	_, fsys := machine()
	fsys.denied = "/energy_uj"
	m := Open(Options{FS: fsys, NoGPUs: true})
	if len(m.Sources()) != 0 || m.Sample().Has != [Domains]bool{} || len(m.Refused()) != 3 {
		t.Fatalf("sources %v, refused %v", m.Sources(), m.Refused())
	}
	if err := m.Refused()[0]; !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "intel-rapl:0/energy_uj") {
		t.Errorf("refused %v", err)
	}
	tr, fsys := machine()
	tr.zone("intel-rapl:1", "package-1", "many", "")
	m = Open(Options{FS: fsys, NoGPUs: true})
	if len(m.Sources()) != 2 || len(m.Refused()) != 1 || !errors.Is(m.Refused()[0], errNumber) {
		t.Errorf("sources %v, refused %v", m.Sources(), m.Refused())
	}
}

// A counter that fails for a while is caught up with.
func TestAFailedReadIsCaughtUpWith(t *testing.T) {
	tr, fsys := machine()
	m := Open(Options{FS: fsys, NoGPUs: true})
	defer m.Close()
	tr[powercap+"/intel-rapl:0/energy_uj"].Data = []byte("\n")
	if got := m.Sample().Joules[Package]; got != 0 {
		t.Errorf("an unreadable counter added %v J", got)
	}
	tr.set("intel-rapl:0", 4_000_000)
	if got := m.Sample().Joules[Package]; got != 3 {
		t.Errorf("caught up with %v J, want 3", got)
	}
}

// boards are GPUs for tests.
type boards struct {
	mj     []uint64
	broken int
	closed bool
}

func (b *boards) Count() int        { return len(b.mj) }
func (b *boards) Name(i int) string { return fmt.Sprintf("board %d", i) }
func (b *boards) Close() error      { b.closed = true; return nil }

func (b *boards) Millijoules(i int) (uint64, error) {
	if i == b.broken {
		return 0, errors.New("no counter")
	}
	return b.mj[i], nil
}

func TestGPUsAreAddedUp(t *testing.T) {
	g := &boards{mj: []uint64{1000, 5, 0}, broken: 1}
	m := Open(Options{FS: fstest.MapFS{}, GPUs: g})
	if s := m.Sources(); len(s) != 2 || s[1] != (Source{GPU, "board 2"}) || len(m.Refused()) != 1 {
		t.Fatalf("sources %v, refused %v", s, m.Refused())
	}
	g.mj[0], g.mj[2] = 3500, 500
	if got := m.Sample(); got.Joules[GPU] != 3 || !got.Has[GPU] || got.Has[Package] {
		t.Errorf("got %+v", got)
	}
	g.mj[0] = 200 // the driver was loaded anew
	g.mj[2] = 1500
	if got := m.Sample().Joules[GPU]; got != 4 {
		t.Errorf("after a new driver %v J, want 4", got)
	}
	if err := m.Close(); err != nil || !g.closed {
		t.Errorf("close: %v, library closed: %v", err, g.closed)
	}
	if got := m.Sample().Joules[GPU]; got != 4 {
		t.Errorf("a closed meter counts: %v", got)
	}
}

// A nil meter is one without counters.
func TestANilMeterIsEmpty(t *testing.T) {
	var m *Meter
	if m.Sample() != (Totals{}) || m.Close() != nil {
		t.Error("a nil meter has something")
	}
	if got := Domain(9).String(); got != "domain(9)" {
		t.Errorf("unknown domain %q", got)
	}
}

// On this machine opening never fails, whatever is there.
func TestOpenOnThisMachine(t *testing.T) {
	m := Open(Options{})
	for _, s := range m.Sources() {
		t.Logf("counter %v %s", s.Domain, s.Name)
	}
	for _, err := range m.Refused() {
		t.Log(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

func FuzzParseMicrojoules(f *testing.F) {
	for _, s := range []string{"0\n", "262143328850\n", "", "12a", "99999999999999999999", "-1"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		n, err := parseMicrojoules(text)
		line, _, _ := strings.Cut(string(text), "\n")
		if err == nil && strings.TrimLeft(fmt.Sprint(n), "0") != strings.TrimLeft(line, "0") {
			t.Errorf("%q gives %d", text, n)
		}
	})
}
