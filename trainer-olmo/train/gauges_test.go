package train

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/asteria-runtime/asteria/trainer-olmo/config"
	"github.com/asteria-runtime/asteria/trainer-olmo/data"
	"github.com/asteria-runtime/asteria/trainer-olmo/energy"
)

// counters is a powercap tree in a folder of the test.
func counters(t *testing.T, zones map[string]string) string {
	t.Helper()
	root := t.TempDir()
	i := 0
	for name, microjoules := range zones {
		dir := filepath.Join(root, fmt.Sprintf("sys/class/powercap/intel-rapl:%d", i))
		i++
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{"name": name, "energy_uj": microjoules, "max_energy_range_uj": "1000000000"} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return root
}

// A step's line has the joules of the step and of the run, over resumes, for the
// domains that the machine counts and for no other.
func TestEnergyIsRecordedWhereItIsCounted(t *testing.T) {
	folder := t.TempDir()
	root := counters(t, map[string]string{"package-0": "5000000"})
	file := filepath.Join(root, "sys/class/powercap/intel-rapl:0/energy_uj")
	used := 5000000
	o := Options{Energy: energy.Options{FS: os.DirFS(root), NoGPUs: true}}
	// Every step takes 2 J: each call of the source moves the counter.
	open := func(c *config.Config) (source, source, error) {
		train, held, err := openText(c)
		return &burning{train, func() {
			used += 2000000
			if err := os.WriteFile(file, fmt.Appendf(nil, "%d\n", used), 0o644); err != nil {
				t.Error(err)
			}
		}}, held, err
	}
	for _, stop := range []string{"train.stop_at=3", "train.stop_at=5"} {
		if _, err := runOn[float32](context.Background(), testConfig(t, folder, stop), o, open); err != nil {
			t.Fatal(err)
		}
	}
	recs, err := ReadMetrics(folder)
	if err != nil {
		t.Fatal(err)
	}
	for i, rec := range recs {
		// The first batch of a process is read once more, to check it.
		first := i == 0 || i == 3
		if got, want := rec[mEnergy[energy.Package]], 2.0; got != want && !(first && got == 4) {
			t.Errorf("step %d took %v J, want %v", i+1, got, want)
		}
		if _, ok := rec[mEnergy[energy.GPU]]; ok {
			t.Errorf("step %d has the energy of a GPU that is not there", i+1)
		}
		if _, ok := rec[mEnergy[energy.DRAM]]; ok {
			t.Errorf("step %d has the energy of memory that is not counted", i+1)
		}
	}
	sum := 0.0
	for _, rec := range recs {
		sum += rec[mEnergy[energy.Package]]
	}
	if got := recs[len(recs)-1][mEnergyTotal[energy.Package]]; math.Abs(got-sum) > 1e-9 || len(recs) != 5 {
		t.Errorf("%d steps, total %v J, the steps add up to %v", len(recs), got, sum)
	}
}

func TestStatusBytes(t *testing.T) {
	const text = "Name:\tx\nVmRSS:\t    1234 kB\nRssAnon:\t   56 kB\nRssFile:\t7 kB\n"
	for _, c := range []struct {
		text, key string
		want      int64
		ok        bool
	}{
		{text, "RssAnon:", 56 << 10, true}, {text, "RssFile:", 7 << 10, true}, {text, "RssShmem:", 0, false},
		{"RssAnon: none kB", "RssAnon:", 0, false}, {"RssAnon:", "RssAnon:", 0, false}, {"RssAnon: 8", "RssAnon:", 8 << 10, true},
	} {
		if got, ok := statusBytes([]byte(c.text), c.key); got != c.want || ok != c.ok {
			t.Errorf("%q of %q: %d, %v", c.key, c.text, got, ok)
		}
	}
}

// The gauges cost a step no allocation.
func TestGaugesAllocateNothing(t *testing.T) {
	g := openGauges(energy.Options{FS: os.DirFS(counters(t, map[string]string{"package-0": "1", "dram": "2"})), NoGPUs: true}, [energy.Domains]float64{})
	defer g.close()
	m, err := openMetrics(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	if n := testing.AllocsPerRun(20, func() { m.begin(1, 0); g.record(m) }); n != 0 {
		t.Errorf("%v allocations a step", n)
	}
}

// burning is a source that does something with every batch.
type burning struct {
	source
	burn func()
}

func (b *burning) Batch(k int64, into *data.Batch) error {
	b.burn()
	return b.source.Batch(k, into)
}
