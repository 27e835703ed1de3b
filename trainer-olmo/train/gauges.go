package train

import (
	"bytes"
	"errors"
	"io"
	"os"

	"github.com/asteria-runtime/asteria/trainer-olmo/energy"
)

// gauges read, once a step, what the machine tells about a run: energy counters
// and the memory of this process. A gauge that the machine lacks writes nothing.
type gauges struct {
	meter  *energy.Meter
	last   energy.Totals
	before [energy.Domains]float64 // joules of the run's earlier processes

	status *os.File // /proc/self/status, nil where there is none
	buf    [4096]byte
	peak   int64 // most anonymous bytes at the end of a step

	tiers  *tierGauge
	device deviceGauge
}

// mEnergy and mEnergyTotal are the metrics of the domains: joules of a step, and
// of the run so far.
var (
	mEnergy      = [energy.Domains]string{"energy/package (J)", "energy/dram (J)", "energy/gpu (J)"}
	mEnergyTotal = [energy.Domains]string{"energy/package total (J)", "energy/dram total (J)", "energy/gpu total (J)"}
)

// openGauges opens what is there; before are the joules that earlier processes of
// the run recorded.
func openGauges(o energy.Options, before [energy.Domains]float64) *gauges {
	g := &gauges{meter: energy.Open(o), before: before}
	if f, err := os.Open("/proc/self/status"); err == nil {
		g.status = f
	}
	return g
}

// record adds a step's readings to its line of metrics.
func (g *gauges) record(m *metricsFile) {
	now := g.meter.Sample()
	for d, has := range now.Has {
		if has {
			m.num(mEnergy[d], now.Joules[d]-g.last.Joules[d])
			m.num(mEnergyTotal[d], g.before[d]+now.Joules[d])
		}
	}
	g.last = now
	if n, ok := g.anonymous(); ok {
		g.peak = max(g.peak, n)
		m.int(mAnonymous, n)
		m.int(mAnonPeak, g.peak)
	}
}

// anonymous is the resident memory of the process that no file backs, in bytes:
// heap, stacks and mapped state, but not the program's text.
func (g *gauges) anonymous() (int64, bool) {
	if g.status == nil {
		return 0, false
	}
	n, err := g.status.ReadAt(g.buf[:], 0)
	if err != nil && err != io.EOF {
		return 0, false
	}
	return statusBytes(g.buf[:n], "RssAnon:")
}

// statusBytes finds a value of /proc/PID/status, which is in kB.
func statusBytes(status []byte, key string) (int64, bool) {
	at := bytes.Index(status, []byte(key))
	if at < 0 {
		return 0, false
	}
	kb, digits := int64(0), 0
	for _, c := range status[at+len(key):] {
		switch {
		case c >= '0' && c <= '9':
			kb, digits = kb*10+int64(c-'0'), digits+1
		case digits > 0:
			return kb << 10, true
		case c != ' ' && c != '\t':
			return 0, false
		}
	}
	return kb << 10, digits > 0
}

// close closes what was opened; nil has nothing open.
func (g *gauges) close() error {
	if g == nil {
		return nil
	}
	err := g.meter.Close()
	if g.status != nil {
		err = errors.Join(err, g.status.Close())
	}
	return err
}
