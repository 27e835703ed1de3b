// Command peers measures the kernels of gemm and invroot beside OpenBLAS, BLIS
// and oneDNN: all in one process, round after round in turn, so that a change of
// the machine's clock or load meets all of them. A peer that is not installed, or
// that computes wrong results on this processor, is left out and named.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/asteria-runtime/asteria/bench/internal/fma"
	"github.com/asteria-runtime/asteria/bench/internal/load"
	"github.com/asteria-runtime/asteria/gemm"
	"github.com/klauspost/cpuid/v2"
)

type options struct {
	quick   bool
	json    string
	mark    string
	groups  string
	shapes  string
	threads string
	core    string
}

func main() {
	var o options
	flag.BoolVar(&o.quick, "quick", false, "fewer sizes and rounds, at most 3 minutes")
	flag.StringVar(&o.json, "json", "", "write the numbers to `file`")
	flag.StringVar(&o.mark, "markdown", "", "write tables to `file`")
	flag.StringVar(&o.groups, "groups", "", "measure only groups whose name contains one of these, comma separated")
	flag.StringVar(&o.shapes, "shapes", "", "measure only rows whose name contains one of these, comma separated")
	flag.StringVar(&o.threads, "threads", "1,2", "thread counts")
	flag.StringVar(&o.core, "core", "", "force OpenBLAS's core type, such as Haswell, in place of its own choice")
	flag.Parse()
	cleanEnvironment(o.core)
	if err := run(o); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "peers:", err)
	os.Exit(1)
}

// cleanEnvironment starts the program anew with the variables that the peers read
// when they are loaded: no core type but the given one, all cores at hand, and
// workers that stop spinning soon after their call, so that one library does not
// disturb the next.
func cleanEnvironment(core string) {
	const mark = "ASTERIA_BENCH_PEERS"
	if os.Getenv(mark) != "" {
		return
	}
	var env []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, "OPENBLAS_") && !strings.HasPrefix(name, "OMP_") && !strings.HasPrefix(name, "GOMP_") && !strings.HasPrefix(name, "BLIS_") {
			env = append(env, kv)
		}
	}
	n := runtime.NumCPU()
	env = append(env, mark+"=1", "OPENBLAS_THREAD_TIMEOUT=20", "GOMP_SPINCOUNT=20000", fmt.Sprintf("OMP_NUM_THREADS=%d", n), fmt.Sprintf("OPENBLAS_NUM_THREADS=%d", n))
	if core != "" {
		env = append(env, "OPENBLAS_CORETYPE="+core)
	}
	self, err := os.Executable()
	if err != nil {
		fail(err)
	}
	fail(syscall.Exec(self, os.Args, env))
}

// report is what -json writes.
type report struct {
	CPU       string
	Kernels   string
	Go        string
	Libraries map[string]string
	Missing   []string
	Warning   string `json:",omitempty"`
	Overhead  map[string]string
	FMA       map[int]float64 // GFLOP/s by threads
	Results   []result
}

func run(o options) error {
	st := newStage()
	defer st.close()
	rep := report{CPU: cpuid.CPU.BrandName, Go: runtime.Version(), Libraries: map[string]string{}, FMA: map[int]float64{}}
	var libs []*library
	var over overheads
	var err error
	st.on(func() {
		libs = openAll(&rep)
		over, err = measureOverheads()
	})
	if err != nil {
		return err
	}
	rep.Overhead = map[string]string{"Fortran call": over.pointers.String(), "dnnl_sgemm": over.dnnl.String()}
	set := settings{rounds: 11, most: 3 * time.Second, steady: 0.01, block: 6 * time.Millisecond, pause: 3 * time.Millisecond}
	if o.quick {
		set = settings{rounds: 5, most: time.Second, steady: 0.02, block: 4 * time.Millisecond, pause: 2 * time.Millisecond}
	}
	rep.Warning = load.Warning()
	counts, err := parseCounts(o.threads)
	if err != nil {
		return err
	}
	for _, n := range counts {
		rep.FMA[n], _ = fma.Peak(n)
	}
	for _, n := range counts {
		b := &bench{engine: gemm.New(n), libs: libs, over: over}
		rep.Kernels = b.engine.Kernels()
		if n == counts[0] {
			rep.printHead(os.Stdout)
		}
		rep.measure(b, st, set, o)
		b.engine.Close()
	}
	rep.printSummary(os.Stdout)
	return rep.write(o)
}

// write writes the files that were asked for.
func (r *report) write(o options) error {
	if o.mark != "" {
		var tables bytes.Buffer
		r.printMarkdown(&tables)
		if err := os.WriteFile(o.mark, tables.Bytes(), 0o644); err != nil {
			return err
		}
	}
	if o.json == "" {
		return nil
	}
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(o.json, append(text, '\n'), 0o644)
}

func openAll(rep *report) []*library {
	var libs []*library
	for _, open := range []func() (*library, error){openOpenBLAS, openBLIS, openOneDNN} {
		l, err := open()
		if err != nil {
			rep.Missing = append(rep.Missing, err.Error())
			continue
		}
		rep.Libraries[l.name] = l.version
		libs = append(libs, l)
	}
	return libs
}

func parseCounts(s string) ([]int, error) {
	var counts []int
	for f := range strings.SplitSeq(s, ",") {
		var n int
		if _, err := fmt.Sscan(f, &n); err != nil || n < 1 {
			return nil, fmt.Errorf("-threads: %q is not a count", f)
		}
		counts = append(counts, n)
	}
	return counts, nil
}
