package doctor

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/klauspost/cpuid/v2"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/hiersync"
	"github.com/asteria-runtime/asteria/streams"
	"github.com/asteria-runtime/asteria/trainer-olmo/energy"
)

// Status grades a finding.
type Status uint8

// The grades.
const (
	OK      Status = iota // present and usable
	Missing               // absent; what it would serve falls back or is not available
	Warn                  // present and likely to disappoint
)

var marks = [...]string{OK: "ok", Missing: "--", Warn: "!!"}

// Finding is one line.
type Finding struct {
	Topic  string
	Status Status
	Found  string
	Looked string // what was looked for
}

// Options say where to look. The zero value is this machine.
type Options struct {
	// Root is put before every system path. Default "".
	Root string
	// Folder is where runs will be saved. Default ".".
	Folder string
	// Getenv reads the environment. Default [os.Getenv].
	Getenv func(string) string
	// Devices lists the accelerators. Default [streams.Devices].
	Devices func() ([]streams.Info, error)
	// MPI describes the MPI library. Default [hiersync.MPIVersion]; with a Root other
	// than "" a look at the files, of which nothing can be opened.
	MPI func() (string, error)
	// LookPath finds a command. Default [exec.LookPath], with a Root nothing.
	LookPath func(string) (string, error)
}

func (o Options) withDefaults() Options {
	if o.Folder == "" {
		o.Folder = "."
	}
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	if o.Devices == nil {
		o.Devices = streams.Devices
	}
	if o.MPI == nil {
		o.MPI = o.mpiVersion
	}
	if o.LookPath == nil {
		o.LookPath = o.lookPath
	}
	return o
}

// mpiVersion asks the library of this machine, or finds its file below a root.
func (o Options) mpiVersion() (string, error) {
	if o.Root == "" {
		return hiersync.MPIVersion()
	}
	if file := library(o, "libmpi.so.40"); file != "" {
		return file, nil
	}
	return "", errors.ErrUnsupported
}

func (o Options) lookPath(name string) (string, error) {
	if o.Root == "" {
		return exec.LookPath(name)
	}
	for _, folder := range []string{"/usr/bin", "/usr/local/bin"} {
		if file := filepath.Join(folder, name); exists(o.path(file)) {
			return file, nil
		}
	}
	return "", exec.ErrNotFound
}

// Examine looks at everything, in a fixed order.
func Examine(o Options) []Finding {
	o = o.withDefaults()
	var out []Finding
	for _, f := range []func(Options) []Finding{
		processor, kernels, threads, memory, limits, disk, directIO, ioUring, mpi, cuda, energyCounters, toolchain,
	} {
		out = append(out, f(o)...)
	}
	return out
}

// Write prints findings as aligned lines.
func Write(w io.Writer, findings []Finding) error {
	width := 0
	for _, f := range findings {
		width = max(width, len(f.Topic))
	}
	var b strings.Builder
	for _, f := range findings {
		fmt.Fprintf(&b, "%s  %-*s  %s\n", marks[f.Status], width, f.Topic, f.Found)
		fmt.Fprintf(&b, "    %-*s  looked for %s\n", width, "", f.Looked)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func one(topic string, s Status, found, looked string) []Finding {
	return []Finding{{topic, s, found, looked}}
}

// processor names the CPU and the instruction sets that kernels exist for.
func processor(Options) []Finding {
	c := cpuid.CPU
	name := strings.TrimSpace(c.BrandName)
	if name == "" {
		name = runtime.GOARCH
	}
	found := fmt.Sprintf("%s, %d cores, %d threads", name, c.PhysicalCores, c.LogicalCores)
	caches := fmt.Sprintf("L1d %s, L2 %s, L3 %s", bytes(int64(c.Cache.L1D)), bytes(int64(c.Cache.L2)), bytes(int64(c.Cache.L3)))
	var have, lack []string
	for _, f := range []struct {
		name string
		id   cpuid.FeatureID
	}{{"AVX2", cpuid.AVX2}, {"FMA3", cpuid.FMA3}, {"AVX512F", cpuid.AVX512F}, {"AVX512DQ", cpuid.AVX512DQ}, {"AVX512VL", cpuid.AVX512VL}, {"AVX512BW", cpuid.AVX512BW}, {"AMX-BF16", cpuid.AMXBF16}, {"ASIMD", cpuid.ASIMD}} {
		if c.Supports(f.id) {
			have = append(have, f.name)
		} else {
			lack = append(lack, f.name)
		}
	}
	return []Finding{
		{"processor", OK, found, "the CPUID brand string"},
		{"caches", OK, caches, "the CPUID cache leaves"},
		{"instructions", OK, strings.Join(have, " "), strings.Join(append(have, lack...), ", ")},
	}
}

// kernels names the set that an engine chooses here.
func kernels(Options) []Finding {
	e := gemm.New(1)
	defer e.Close()
	s := OK
	if strings.Contains(e.Kernels(), "generic") || strings.Contains(e.Kernels(), "portable") {
		s = Warn
	}
	return one("kernels", s, e.Kernels(), "the best kernel set for this CPU and build")
}

func threads(Options) []Finding {
	return one("threads", OK, fmt.Sprintf("%d CPUs usable, GOMAXPROCS %d", runtime.NumCPU(), runtime.GOMAXPROCS(0)),
		"the CPU affinity and GOMAXPROCS")
}

// read is a small file of the system as a trimmed text.
func (o Options) read(path string) (string, error) {
	b, err := os.ReadFile(o.path(path))
	return strings.TrimSpace(string(b)), err
}

func (o Options) path(p string) string { return filepath.Join(o.Root+"/", p) }

func memory(o Options) []Finding {
	const file = "/proc/meminfo"
	text, err := o.read(file)
	if err != nil {
		return one("memory", Missing, "unknown: "+reason(err), file)
	}
	total, available := meminfo(text, "MemTotal"), meminfo(text, "MemAvailable")
	huge, err := o.read("/sys/kernel/mm/transparent_hugepage/enabled")
	if err != nil {
		huge = "unknown"
	}
	return []Finding{
		{"memory", OK, fmt.Sprintf("%s, %s available", bytes(total), bytes(available)), "MemTotal and MemAvailable in " + file},
		{"huge pages", OK, chosen(huge), "/sys/kernel/mm/transparent_hugepage/enabled"},
	}
}

// meminfo is a value of /proc/meminfo in bytes, 0 when it is not there.
func meminfo(text, key string) int64 {
	for line := range strings.Lines(text) {
		var kb int64
		if rest, ok := strings.CutPrefix(line, key+":"); ok {
			if _, err := fmt.Sscanf(rest, "%d", &kb); err == nil {
				return kb * 1024
			}
		}
	}
	return 0
}

// chosen picks the word in brackets: "always [madvise] never".
func chosen(s string) string {
	_, rest, ok := strings.Cut(s, "[")
	word, _, closed := strings.Cut(rest, "]")
	if ok && closed {
		return word
	}
	return s
}

// limits reads the memory and CPU limits of the control group, version 2 or 1.
func limits(o Options) []Finding {
	group := "/sys/fs/cgroup"
	if text, err := o.read("/proc/self/cgroup"); err == nil {
		for line := range strings.Lines(text) {
			if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok && path != "/" {
				if _, err := os.Stat(o.path(group + path + "/memory.max")); err == nil {
					group += path
				}
			}
		}
	}
	return []Finding{limit(o, "memory limit", group+"/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes", func(v string) string {
		var n int64
		if _, err := fmt.Sscan(v, &n); err != nil || n > 1<<60 {
			return "none"
		}
		return bytes(n)
	}), limit(o, "CPU limit", group+"/cpu.max", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", cpuLimit)}
}

func limit(o Options, topic, v2, v1 string, show func(string) string) Finding {
	looked := v2 + " and " + v1
	for _, file := range []string{v2, v1} {
		if text, err := o.read(file); err == nil && text != "" {
			return Finding{topic, OK, show(text), looked}
		}
	}
	return Finding{topic, Missing, "no control group limits visible", looked}
}

// cpuLimit shows "200000 100000" as 2 CPUs.
func cpuLimit(v string) string {
	var quota, period float64
	if n, _ := fmt.Sscan(v, &quota, &period); n == 2 && period > 0 {
		return fmt.Sprintf("%.3g CPUs", quota/period)
	} else if n == 1 && quota > 0 {
		return fmt.Sprintf("%g µs a period", quota)
	}
	return "none"
}

// libraryFolders are where the loader looks, besides its cache.
var libraryFolders = []string{"/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib", "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/local/cuda/lib64", "/usr/lib/wsl/lib"}

// library is the path of a shared library that the loader would find, "" without.
func library(o Options, names ...string) string {
	folders := append(filepath.SplitList(o.Getenv("LD_LIBRARY_PATH")), libraryFolders...)
	for _, name := range names {
		for _, folder := range folders {
			if file := o.path(filepath.Join(folder, name)); folder != "" && exists(file) {
				return file
			}
		}
		if file := cached(o, name); file != "" {
			return file
		}
	}
	return ""
}

// cached finds a path that ends with /name in the loader's cache, a file of
// NUL-terminated texts.
func cached(o Options, name string) string {
	b, err := os.ReadFile(o.path("/etc/ld.so.cache"))
	if err != nil {
		return ""
	}
	for s := range strings.SplitSeq(string(b), "\x00") {
		if strings.HasPrefix(s, "/") && strings.HasSuffix(s, "/"+name) && exists(o.path(s)) {
			return s
		}
	}
	return ""
}

func exists(file string) bool { _, err := os.Stat(file); return err == nil }

// mpi looks for the two parts of many ranks in several processes: the library that
// this program opens, and the command that starts the ranks.
func mpi(o Options) []Finding {
	const looked = "libmpi.so.40 of Open MPI (loader paths and LD_LIBRARY_PATH); mpirun in PATH; OMPI_COMM_WORLD_SIZE, PMI_SIZE"
	launched := "not started by mpirun"
	for _, key := range []string{"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"} {
		if n := o.Getenv(key); n != "" {
			launched = "started as one of " + n + " ranks"
		}
	}
	version, err := o.MPI()
	version, _, _ = strings.Cut(version, ", package")
	starter, lerr := o.LookPath("mpirun")
	switch {
	case err != nil && lerr != nil:
		return one("MPI", Missing, "no Open MPI (Debian: libopenmpi3, openmpi-bin): parallel.ranks runs ranks in one process; "+launched, looked)
	case err != nil:
		return one("MPI", Warn, fmt.Sprintf("%s without a library that this program can use: %v; %s", starter, err, launched), looked)
	case lerr != nil:
		return one("MPI", Warn, version+", but no mpirun to start ranks with (Debian: openmpi-bin); "+launched, looked)
	}
	return one("MPI", OK, version+", "+starter+", "+launched, looked)
}

// energyCounters lists the counters that runs will report. Most systems let only
// root read those of RAPL.
func energyCounters(o Options) []Finding {
	const looked = "/sys/class/powercap/intel-rapl:*/energy_uj, libnvidia-ml.so.1"
	m := energy.Open(energy.Options{FS: os.DirFS(o.path("/")), NoGPUs: o.Root != ""})
	defer m.Close()
	var names []string
	for _, s := range m.Sources() {
		names = append(names, s.Domain.String()+" "+s.Name)
	}
	refused := m.Refused()
	switch {
	case len(names) > 0:
		return one("energy counters", OK, strings.Join(names, ", "), looked)
	case len(refused) > 0:
		return one("energy counters", Warn, fmt.Sprintf("%d found, none readable (%s); run as root or change their mode", len(refused), reason(refused[0])), looked)
	}
	return one("energy counters", Missing, "not found", looked)
}

// toolchain looks for the Go sources of the corpus goroot.
func toolchain(o Options) []Finding {
	looked := "the go command in PATH, for the corpus goroot"
	file, err := exec.LookPath("go")
	if err != nil {
		return one("Go toolchain", Missing, "no go command; set data.go_root to use the corpus goroot", looked)
	}
	return one("Go toolchain", OK, file, looked)
}

// reason is the last part of an error of the file system.
func reason(err error) string {
	var e *os.PathError
	if errors.As(err, &e) {
		return e.Err.Error()
	}
	return err.Error()
}

// bytes shows a size with a binary unit.
func bytes(n int64) string {
	switch f := float64(n); {
	case n < 0:
		return "unknown"
	case n >= 1<<40:
		return fmt.Sprintf("%.1f TiB", f/(1<<40))
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", f/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", f/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.0f KiB", f/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}
