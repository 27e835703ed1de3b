package train

import (
	"io"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/asteria-runtime/asteria/hiersync"
	"github.com/asteria-runtime/asteria/hooks"
	"github.com/asteria-runtime/asteria/trainer-olmo/asteria"
	"github.com/asteria-runtime/asteria/trainer-olmo/checkpoint"
	"github.com/asteria-runtime/asteria/trainer-olmo/energy"
)

// Options are what a run needs beside its configuration. The zero value trains
// silently.
type Options struct {
	// Out receives the progress. Default nil: none.
	Out io.Writer
	// Live says that Out is a terminal, on which one line is rewritten; otherwise
	// about twenty lines are written over a run.
	Live bool
	// Logger is told of transitions: resumed, saved, fallback taken. Default: nobody.
	Logger *slog.Logger
	// Build names the program in checkpoints; a resume under another name warns.
	Build string
	// Hooks are fired at the points of every step. Default nil.
	Hooks *hooks.Schedule
	// FS is the file system of the checkpoints, for tests. Default: the operating
	// system's.
	FS checkpoint.FS
	// Comm joins this run to the ranks of a data-parallel one; the caller closes it.
	// Default nil: parallel.ranks of the configuration decides.
	Comm *hiersync.Comm
	// Solvers stands between the second-order optimizer's refreshes and its solvers;
	// see [asteria.Solvers]. Default nil: nothing does.
	Solvers asteria.Solvers
	// System is the root of the file system in which the pressure on memory is looked
	// for, for tests. Default: the operating system's.
	System fs.FS
	// Energy says where energy counters are looked for. The zero value is this machine.
	Energy energy.Options
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Out == nil {
		o.Out = io.Discard
	}
	if o.System == nil {
		o.System = os.DirFS("/")
	}
	return o
}

// Result is how a run ended, over all processes that worked on it.
type Result struct {
	Folder      string
	Optimizer   string
	Steps       int64   // steps done
	TotalSteps  int64   // length of the run
	Tokens      int64   // tokens trained on
	Loss        float64 // cross-entropy of the last step
	TailLoss    float64 // mean over the last tenth of the steps
	HeldOut     float64 // cross-entropy of the last evaluation, NaN without one
	HeldOutPPL  float64 // its perplexity
	Skipped     int64   // steps given up by the skip-step rule
	NonFinite   int64   // steps given up as not finite
	Seconds     float64 // sum of the step times
	StepP50     float64 // median step, seconds, first steps of processes left out
	StepP99     float64
	StepMax     float64
	TPS         float64
	Interrupted bool  // the context ended before the run did
	Resumed     int64 // step at which this process took over, 0 for a new run
}

// Elapsed is the sum of the step times.
func (r Result) Elapsed() time.Duration { return time.Duration(r.Seconds * float64(time.Second)) }
