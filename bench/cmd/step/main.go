// Command step measures the training step of one configuration beside PyTorch on
// a model of the same shape: AdamW and SOAP, on 1 and 2 threads, our steps and
// its steps in turn, so that a change of the machine's load meets both.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/asteria-runtime/asteria/bench/internal/load"
	"github.com/asteria-runtime/asteria/bench/internal/profile"
	"github.com/asteria-runtime/asteria/trainer-olmo/config"
)

type options struct {
	config, root, python, json string
	optimizers, threads        string
	profile                    string
	rounds, steps              int
	quick                      bool
}

func main() {
	var o options
	flag.StringVar(&o.root, "root", "..", "`folder` of the repository")
	flag.StringVar(&o.config, "config", "", "configuration `file` (default configs/bench-d256.yaml of the repository)")
	flag.StringVar(&o.python, "python", "", "interpreter with PyTorch (default: the one of setup-step.sh, else python3)")
	flag.StringVar(&o.json, "json", "", "write the numbers to `file`")
	flag.StringVar(&o.optimizers, "optimizers", "adamw,soap", "optimizers")
	flag.StringVar(&o.threads, "threads", "1,2", "thread counts")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds of each pair")
	flag.IntVar(&o.steps, "steps", 10, "steps in a round; a multiple of the refresh interval")
	flag.StringVar(&o.profile, "cpuprofile", "", "write a profile of our side to `file`")
	flag.BoolVar(&o.quick, "quick", false, "two rounds, no search for PyTorch's best configuration (eager)")
	flag.Parse()
	if o.quick {
		o.rounds = 2
	}
	if o.config == "" {
		o.config = filepath.Join(o.root, "configs", "bench-d256.yaml")
	}
	if err := profile.Run(o.profile, func() error { return run(&o) }); err != nil {
		fmt.Fprintln(os.Stderr, "step:", err)
		os.Exit(1)
	}
}

// row is one line of the table; times in seconds.
type row struct {
	Optimizer string
	Threads   int
	Ours      side
	Peer      *side  `json:",omitempty"`
	Variant   string `json:",omitempty"` // the peer's configuration
	Allocs    float64
	Loss      float64
}

// side is what one contender measured.
type side struct {
	Min, Median float64
	Refresh     float64 // median over rounds of the slowest step
	CPU         float64 // median of the CPU time, all threads
}

type report struct {
	Torch     string `json:",omitempty"`
	Missing   string `json:",omitempty"`
	Warning   string `json:",omitempty"`
	Kernels   string
	StepFlops float64
	Rows      []row
}

func run(o *options) error {
	rep := &report{Warning: load.Warning()}
	if rep.Warning != "" {
		fmt.Println(rep.Warning)
	}
	python, err := findPython(o.root, o.python)
	if err != nil {
		rep.Missing = err.Error()
		fmt.Printf("left out: %s\n", err)
	}
	first := true
	for name := range strings.SplitSeq(o.optimizers, ",") {
		for threads := range strings.SplitSeq(o.threads, ",") {
			c, err := config.Load(o.config, []string{"optimizer.name=" + name, "train.threads=" + threads, "runtime.mode=native"})
			if err != nil {
				return err
			}
			r, err := rep.measure(o, c, python)
			if err != nil {
				return err
			}
			if first {
				rep.printHead(c)
				first = false
			}
			rep.Rows = append(rep.Rows, *r)
			rep.printRow(r)
		}
	}
	if o.json == "" {
		return nil
	}
	text, err := json.MarshalIndent(rep, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(o.json, append(text, '\n'), 0o644)
}

// measure runs one optimizer on one number of threads against the best variant of
// the peer.
func (rep *report) measure(o *options, c *config.Config, python string) (*row, error) {
	threads := c.Train.Threads
	us, err := newOurs(c, threads)
	if err != nil {
		return nil, err
	}
	defer us.close()
	_, matmul := us.model.Config().ParamCount() // all but the embedding, which is only looked up
	rep.StepFlops = 6 * float64(matmul) * float64(len(us.batch.Tokens))
	rep.Kernels = us.engine.Kernels()
	// SOAP's first call and its first refresh build everything there is.
	if _, err := us.run(12); err != nil {
		return nil, err
	}
	r := &row{Optimizer: c.Optimizer.Name, Threads: threads}
	them := rep.bestPeer(o, c, python)
	var ours, theirs [][]sample
	for range o.rounds {
		t, err := us.run(o.steps)
		if err != nil {
			return nil, err
		}
		ours = append(ours, t)
		if them == nil {
			continue
		}
		if t, err = them.run(o.steps); err != nil {
			fmt.Println("left out:", err)
			them = nil
			continue
		}
		theirs = append(theirs, t)
		time.Sleep(quiet)
	}
	r.Ours, r.Loss = summary(ours), us.last
	n, err := us.allocations(o.steps)
	if err != nil {
		return nil, err
	}
	r.Allocs = float64(n) / float64(o.steps)
	if them != nil {
		s := summary(theirs)
		r.Peer, r.Variant = &s, them.name
		them.close()
	}
	return r, nil
}

// quiet is how long the peer's workers may spin after its block.
const quiet = 250 * time.Millisecond

// bestPeer starts every variant, takes a few steps of each in turn and keeps the
// fastest; the others end.
func (rep *report) bestPeer(o *options, c *config.Config, python string) *peer {
	if python == "" {
		return nil
	}
	vs := variants(c.Optimizer.Name)
	if o.quick {
		vs = vs[:1]
	}
	var best *peer
	var fastest float64
	for _, v := range vs {
		p, err := startPeer(python, filepath.Join(o.root, "bench", "torch", "step.py"), c, c.Train.Threads, v)
		if err != nil {
			fmt.Println("left out:", err)
			continue
		}
		rep.Torch = p.Version + ", " + p.BLAS
		t, err := p.run(o.steps)
		if err != nil {
			fmt.Println("left out:", err)
			continue
		}
		s := summary([][]sample{t})
		fmt.Printf("  trying PyTorch %-40s %s, %d thread(s): median %.1f ms\n", p.name, c.Optimizer.Name, c.Train.Threads, s.Median*1e3)
		if best == nil || s.Median < fastest {
			best, p, fastest = p, best, s.Median
		}
		if p != nil {
			p.close()
		}
	}
	return best
}

func summary(rounds [][]sample) side {
	var all, cpu, slowest []float64
	for _, r := range rounds {
		var most float64
		for _, t := range r {
			all, cpu = append(all, t[0]), append(cpu, t[1])
			most = max(most, t[0])
		}
		slowest = append(slowest, most)
	}
	for _, x := range [][]float64{all, cpu, slowest} {
		slices.Sort(x)
	}
	return side{Min: all[0], Median: all[len(all)/2], Refresh: slowest[len(slowest)/2], CPU: cpu[len(cpu)/2]}
}

func (rep *report) printHead(c *config.Config) {
	m := c.ModelConfig()
	fmt.Printf("d %d, %d layers, %d heads, hidden %d, vocabulary %d, %d tokens in rows of %d, float32, kernels %s\n",
		m.DModel, m.NLayers, m.NHeads, m.HiddenSize, m.VocabSize, int(c.Train.GlobalBatchSize), c.Data.SequenceLength, rep.Kernels)
	fmt.Printf("6*N*tokens = %.1f GFLOP, N without the embedding\n", rep.StepFlops/1e9)
	if rep.Torch != "" {
		fmt.Println("PyTorch", rep.Torch)
	}
	fmt.Println("times in ms: median (minimum), median over rounds of the slowest step, which refreshes, median CPU time of all threads")
}

func (rep *report) printRow(r *row) {
	fmt.Printf("%-6s %d thread(s)  ours %.1f (%.1f), slowest %.1f, CPU %.1f, %.1f GFLOP/s, %.2f allocations a step, loss %.3f\n", r.Optimizer, r.Threads,
		r.Ours.Median*1e3, r.Ours.Min*1e3, r.Ours.Refresh*1e3, r.Ours.CPU*1e3, rep.StepFlops/r.Ours.Median/1e9, r.Allocs, r.Loss)
	if p := r.Peer; p != nil {
		fmt.Printf("%20s PyTorch %s %.1f (%.1f), slowest %.1f, CPU %.1f, %.1f GFLOP/s\n", "", r.Variant,
			p.Median*1e3, p.Min*1e3, p.Refresh*1e3, p.CPU*1e3, rep.StepFlops/p.Median/1e9)
		fmt.Printf("%20s PyTorch÷ours: median %.2f, minimum %.2f, slowest %.2f, CPU %.2f\n", "", p.Median/r.Ours.Median, p.Min/r.Ours.Min, p.Refresh/r.Ours.Refresh, p.CPU/r.Ours.CPU)
	}
}
