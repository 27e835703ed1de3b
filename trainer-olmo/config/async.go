package config

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"

	"github.com/asteria-runtime/asteria/trainer-olmo/asteria"
)

// spareNice is added to the nice value of refresh workers that have cores of their
// own: they yield to whatever else runs there.
const spareNice = 5

// RefreshWorkers is the number of refresh workers: as configured, or chosen from
// the cores that the computing threads leave, at least one; none in native mode.
func (c *Config) RefreshWorkers() int {
	switch {
	case c.Runtime.Mode != "asteria" || !c.Optimizer.SecondOrder():
		return 0
	case c.Runtime.Workers > 0:
		return c.Runtime.Workers
	}
	return max(1, runtime.NumCPU()-c.ComputeThreads())
}

// ComputeThreads is train.threads with its default filled in: one for each
// processor.
func (c *Config) ComputeThreads() int { return or(c.Train.Threads, runtime.NumCPU()) }

// async translates the section runtime. The workers are paced: where all cores
// train that decides how much each step is slowed, and where cores are spare it
// spreads what they take of caches and memory. There they also give way at low
// priority, which elsewhere would starve them until training waits.
func (c *Config) async() (asteria.Mode, asteria.Async) {
	r := &c.Runtime
	spare := runtime.NumCPU() >= c.ComputeThreads()+c.RefreshWorkers()
	a := asteria.Async{
		Staleness: negativeZero(int64(r.Staleness)), Lag: negativeZero(int64(r.Lag)), LagStart: negativeZero(int64(r.LagStart)),
		Adopt: asteria.Adopt(index(r.Adopt, "scheduled", "ready")), ReadyShare: r.ReadyShare, Workers: c.RefreshWorkers(),
		JobTimeout: r.JobTimeout, Paced: true,
	}
	if spare {
		a.Nice = spareNice
	}
	return asteria.Mode(index(r.Mode, "native", "asteria")), a
}

// Accelerator reads the key device: the ordinal of a CUDA device, -1 for the CPU,
// and whether the CPU will do where there is no such device.
func (r *Runtime) Accelerator() (ordinal int, optional bool, err error) {
	switch r.Device {
	case "cpu":
		return -1, false, nil
	case "auto":
		return 0, true, nil
	}
	number, ok := strings.CutPrefix(r.Device, "cuda:")
	n, err := strconv.ParseUint(number, 10, 10)
	if !ok || err != nil {
		return 0, false, fmt.Errorf("%q; allowed: auto, cpu, cuda:0 and further numbers", r.Device)
	}
	return int(n), false, nil
}

// runtime checks the section of that name.
func (v *validator) runtime(c *Config) {
	r, every := &c.Runtime, c.Optimizer.PreconditionFrequency
	if _, _, err := r.Accelerator(); err != nil {
		v.fail(true, "runtime.device", "%v", err)
	}
	if r.Mode != "asteria" {
		v.fail(r.Replay != "", "runtime.replay", "needs runtime.mode asteria, not %s", r.Mode)
		return
	}
	v.fail(r.Lag > r.Staleness, "runtime.lag", "%d is above runtime.staleness %d", r.Lag, r.Staleness)
	v.fail(r.Lag > every, "runtime.lag", "%d is above optimizer.precondition_frequency %d; a refresh would be due before the last one is adopted", r.Lag, every)
}
