package train

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

func stalls(percent float64) fstest.MapFS {
	text := fmt.Sprintf("some avg10=%.2f avg60=0.00 avg300=0.00 total=1\n", percent)
	return fstest.MapFS{"proc/pressure/memory": {Data: []byte(text)}}
}

// A system that is short of memory gets a part of the tiers' budgets back, which
// the log and the metrics tell and no result shows. One that does not tell is no
// error, and has no metric.
func TestPressureMovesStateAndNoBit(t *testing.T) {
	run := func(system fstest.MapFS, more ...string) (digest, log string, last Record) {
		folder := t.TempDir()
		tiers := fmt.Sprintf("tiers={host: 160KiB, nvme: {path: %q}}", filepath.Join(folder, "drive"))
		var b strings.Builder
		c := testConfig(t, folder, asteriaRun("soap", append(more, tiers)...)...)
		mustRun(t, c, Options{Logger: textLogger(&b), System: system})
		recs, err := ReadMetrics(folder)
		if err != nil {
			t.Fatal(err)
		}
		return digestOf(t, folder).Total, b.String(), recs[len(recs)-1]
	}
	const tells = "short of memory"
	calm, log, last := run(stalls(0))
	if part, ok := last[mPressure]; !ok || part != 0 || strings.Contains(log, tells) {
		t.Errorf("calm: %v of %v\n%s", part, ok, log)
	}
	short, log, last := run(stalls(20))
	if last[mPressure] != 0.5 || strings.Count(log, tells) != 1 {
		t.Errorf("short: %v\n%s", last[mPressure], log)
	}
	if short != calm {
		t.Errorf("digest %s under pressure, %s without", short, calm)
	}
	for name, c := range map[string]struct {
		system fstest.MapFS
		set    []string
	}{"no files": {fstest.MapFS{}, nil}, "switched off": {stalls(20), []string{"tiers.pressure=false"}}} {
		digest, log, last := run(c.system, c.set...)
		if _, ok := last[mPressure]; ok || strings.Contains(log, tells) || digest != calm {
			t.Errorf("%s: %v, digest %s, want %s\n%s", name, last, digest, calm, log)
		}
	}
}

// A reading that fails once is told once and counts as none.
func TestPressureThatCannotBeReadIsNone(t *testing.T) {
	var b strings.Builder
	files := stalls(20)
	p := newPressure(files, textLogger(&b))
	if p == nil || p.wanted() != 0.5 {
		t.Fatalf("%v", p)
	}
	files["proc/pressure/memory"].Data = []byte("some avg10=much avg60=0\n")
	p.look()
	p.look()
	if p.wanted() != 0 || strings.Contains(b.String(), "panic") {
		t.Errorf("%v\n%s", p.wanted(), b.String())
	}
	var none *pressure
	none.look()
	if newPressure(fstest.MapFS{}, textLogger(&b)) != nil {
		t.Error("a system without the files has a pressure")
	}
}
