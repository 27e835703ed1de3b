// Command spike measures what refreshes do to the step times: AdamW, the native
// second-order method and the same with refreshes beside training, each a run of
// the trainer, in turn, so that a change of the machine's load meets all. It
// prints ratios: each run's slow steps to its own median, beside AdamW's.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/asteria-runtime/asteria/bench/internal/load"
)

type options struct {
	trainer, root, work string
	methods, setups     string
	config              string
	rounds, steps, skip int
}

func main() {
	var o options
	flag.StringVar(&o.root, "root", "..", "`folder` of the repository")
	flag.StringVar(&o.trainer, "trainer", "", "trainer-olmo `binary` (default bin/trainer-olmo of the repository)")
	flag.StringVar(&o.work, "work", "", "keep the run folders in `folder`, and reuse those that are complete (default: a temporary one)")
	flag.StringVar(&o.config, "config", "", "configuration `file` (default configs/spike-METHOD.yaml, or spike.yaml)")
	flag.StringVar(&o.methods, "methods", "shampoo,soap,kl-shampoo", "methods")
	flag.StringVar(&o.setups, "setups", "spare,busy", "spare: 1 training thread and 1 worker; busy: 2 and 1, on two cores")
	flag.IntVar(&o.rounds, "rounds", 1, "rounds of each set-up")
	flag.IntVar(&o.steps, "steps", 330, "steps of a run")
	flag.IntVar(&o.skip, "skip", 15, "first steps that do not count: the interval and the staleness")
	flag.Parse()
	if err := run(&o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "spike:", err)
		os.Exit(1)
	}
}

// variant is one of the runs that are compared.
type variant struct {
	name string
	set  []string // beside the method and the threads
}

var adamw = variant{"adamw", []string{"optimizer.name=adamw"}}

// setup is a division of the cores, with its runs.
type setup struct {
	name    string
	threads int
	runs    []variant
}

// allSetups are the two set-ups on a machine with two cores.
func allSetups() []setup {
	native := variant{"native", []string{"runtime.mode=native"}}
	asteria := variant{"asteria", []string{"runtime.mode=asteria", "runtime.workers=1"}}
	stagger := func(v variant) variant {
		return variant{v.name + ", staggered", append([]string{"optimizer.stagger=true"}, v.set...)}
	}
	return []setup{
		{"spare", 1, []variant{adamw, native, asteria}},
		{"busy", 2, []variant{adamw, stagger(native), stagger(asteria), native, asteria}},
	}
}

func run(o *options, w io.Writer) error {
	if o.steps <= o.skip || o.rounds < 1 {
		return fmt.Errorf("steps %d, skip %d, rounds %d: want steps above skip and a round", o.steps, o.skip, o.rounds)
	}
	if warning := load.Warning(); warning != "" {
		fmt.Fprintln(os.Stderr, warning)
	}
	if o.trainer == "" {
		o.trainer = filepath.Join(o.root, "bin", "trainer-olmo")
	}
	if o.work == "" {
		dir, err := os.MkdirTemp("", "spike")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		o.work = dir
	}
	for _, method := range strings.Split(o.methods, ",") {
		for _, s := range allSetups() {
			if !strings.Contains(","+o.setups+",", ","+s.name+",") {
				continue
			}
			times, err := measure(o, method, s)
			if err != nil {
				return err
			}
			printTable(w, method, s, times)
		}
	}
	return nil
}

// measure makes the runs of a set-up in turn, in the other direction every other
// round, and returns the step times of each variant, one list per round.
func measure(o *options, method string, s setup) ([][][]float64, error) {
	times := make([][][]float64, len(s.runs))
	for round := range o.rounds {
		for i := range s.runs {
			if round%2 == 1 {
				i = len(s.runs) - 1 - i
			}
			t, err := oneRun(o, method, s, s.runs[i], round)
			if err != nil {
				return nil, err
			}
			times[i] = append(times[i], t)
		}
	}
	return times, nil
}

// configFor is the configuration of a method's runs.
func (o *options) configFor(method string) string {
	if o.config != "" {
		return o.config
	}
	own := filepath.Join(o.root, "configs", "spike-"+method+".yaml")
	if _, err := os.Stat(own); err == nil {
		return own
	}
	return filepath.Join(o.root, "configs", "spike.yaml")
}

// oneRun is one run of the trainer, unless its folder holds it already.
func oneRun(o *options, method string, s setup, v variant, round int) ([]float64, error) {
	name := strings.NewReplacer(", ", "-").Replace(fmt.Sprintf("%s-%s-%s-%d", method, s.name, v.name, round))
	folder := filepath.Join(o.work, name)
	if t, err := stepTimes(folder, o.skip); err == nil && len(t) == o.steps-o.skip {
		return t, nil
	}
	if err := os.RemoveAll(folder); err != nil {
		return nil, err
	}
	args := append([]string{"train", o.configFor(method), "optimizer.name=" + method}, v.set...)
	args = append(args, "train.threads="+strconv.Itoa(s.threads), "train.steps="+strconv.Itoa(o.steps),
		"save_folder="+folder, "checkpoint.interval=0", "eval.interval=0", "eval.tokens=1024")
	fmt.Fprintln(os.Stderr, name)
	if out, err := exec.Command(o.trainer, args...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", name, err, out)
	}
	t, err := stepTimes(folder, o.skip)
	if err == nil && len(t) != o.steps-o.skip {
		err = errors.New("the run has no metrics for some steps")
	}
	return t, err
}
