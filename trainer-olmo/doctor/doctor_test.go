package doctor

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/asteria-runtime/asteria/streams"
)

// machine writes a pretended system below a folder.
func machine(t *testing.T, files map[string]string) Options {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	none := func() ([]streams.Info, error) { return nil, errors.New("streams: cuda: libcuda.so.1 not found") }
	return Options{Root: root, Folder: t.TempDir(), Getenv: func(string) string { return "" }, Devices: none}
}

func find(t *testing.T, o Options, topic string) Finding {
	t.Helper()
	for _, f := range Examine(o) {
		if f.Topic == topic {
			return f
		}
	}
	t.Fatalf("no line about %s", topic)
	return Finding{}
}

func TestEveryLineSaysWhatWasLookedFor(t *testing.T) {
	findings := Examine(Options{Folder: t.TempDir()})
	topics := map[string]bool{}
	for _, f := range findings {
		if f.Found == "" || f.Looked == "" || topics[f.Topic] {
			t.Errorf("%+v", f)
		}
		topics[f.Topic] = true
	}
	for _, want := range []string{"processor", "kernels", "threads", "memory", "memory limit", "CPU limit", "disk", "direct I/O", "io_uring", "MPI", "CUDA", "energy counters"} {
		if !topics[want] {
			t.Errorf("nothing about %s", want)
		}
	}
	var b strings.Builder
	if err := Write(&b, findings); err != nil || strings.Count(b.String(), "\n") != 2*len(findings) {
		t.Errorf("%v\n%s", err, b.String())
	}
}

func TestAnEmptyMachineHasNothingAndIsNoError(t *testing.T) {
	o := machine(t, nil)
	for _, topic := range []string{"memory", "memory limit", "CPU limit", "MPI", "CUDA", "energy counters"} {
		if f := find(t, o, topic); f.Status != Missing {
			t.Errorf("%+v, want it missing", f)
		}
	}
	if f := find(t, o, "CUDA"); f.Found != "cuda: libcuda.so.1 not found" {
		t.Errorf("CUDA: %s", f.Found)
	}
}

func TestWhatIsThereIsFound(t *testing.T) {
	o := machine(t, map[string]string{
		"proc/meminfo":         "MemTotal:       16384000 kB\nMemFree: 1 kB\nMemAvailable:    8192000 kB\n",
		"proc/self/cgroup":     "0::/user.slice/a\n",
		"usr/lib/libmpi.so.40": "", "usr/bin/mpirun": "", "opt/x/libcuda.so.1": "", "dev/nvidia0": "",
		"etc/ld.so.cache":                            "ld.so-1.7.0\x00\x01\x02\x00/opt/x/libcuda.so.1\x00",
		"proc/driver/nvidia/version":                 "NVRM version: 1\nGCC\n",
		"sys/fs/cgroup/user.slice/a/memory.max":      "536870912\n",
		"sys/fs/cgroup/user.slice/a/cpu.max":         "150000 100000\n",
		"sys/class/powercap/intel-rapl:0/energy_uj":  "123\n",
		"sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
		"sys/class/powercap/intel-rapl:0/name":       "package-0\n",
	})
	o.Getenv = func(key string) string {
		if key == "OMPI_COMM_WORLD_SIZE" {
			return "4"
		}
		return ""
	}
	for topic, want := range map[string]string{
		"memory": "15.6 GiB, 7.8 GiB available", "memory limit": "512.0 MiB", "CPU limit": "1.5 CPUs",
		"energy counters": "package package-0", "huge pages": "madvise",
	} {
		if f := find(t, o, topic); f.Found != want || f.Status != OK {
			t.Errorf("%s: %q, want %q", topic, f.Found, want)
		}
	}
	if f := find(t, o, "MPI"); f.Status != OK || !strings.HasSuffix(f.Found, "libmpi.so.40, /usr/bin/mpirun, started as one of 4 ranks") {
		t.Errorf("MPI: %s", f.Found)
	}
}

// TestMPIThatIsThereInPartIsSaid: the library and mpirun are separate packages, and a
// library of another MPI is of no use.
func TestMPIThatIsThereInPartIsSaid(t *testing.T) {
	for name, tc := range map[string]struct {
		files  map[string]string
		status Status
		want   string
	}{
		"nothing":      {nil, Missing, "no Open MPI (Debian: libopenmpi3, openmpi-bin): parallel.ranks runs ranks in one process"},
		"only library": {map[string]string{"usr/lib/libmpi.so.40": ""}, Warn, "but no mpirun"},
		"only mpirun":  {map[string]string{"usr/bin/mpirun": ""}, Warn, "/usr/bin/mpirun without a library that this program can use"},
		"another MPI":  {map[string]string{"usr/bin/mpirun": "", "usr/lib/libmpi.so.12": ""}, Warn, "without a library that this program can use"},
	} {
		if f := find(t, machine(t, tc.files), "MPI"); f.Status != tc.status || !strings.Contains(f.Found, tc.want) {
			t.Errorf("%s: %+v, want %q", name, f, tc.want)
		}
	}
}

func TestAcceleratorsAreListedWithTheirMemory(t *testing.T) {
	o := machine(t, map[string]string{"usr/lib64/libcublas.so.12": ""})
	o.Devices = func() ([]streams.Info, error) {
		return []streams.Info{
			{Name: "A", Driver: 12040, Capability: 90, Multiprocessors: 132, TotalBytes: 1 << 36, Managed: true, Concurrent: true},
			{Ordinal: 1, Name: "B", Capability: 121, Integrated: true, Pageable: true, HostTables: true},
			{Ordinal: 2, Name: "C", Capability: 75},
		}, nil
	}
	for topic, want := range map[string]string{
		"CUDA":   "3 device(s), driver for CUDA 12.4",
		"cuda:0": "A, compute capability 9.0, 132 multiprocessors, 64.0 GiB, discrete, concurrent managed access; memory: managed + prefetch",
		"cuda:1": "B, compute capability 12.1, 0 multiprocessors, 0 B, integrated, hardware-coherent; memory: direct",
		"cuda:2": "C, compute capability 7.5, 0 multiprocessors, 0 B, discrete; memory: staged through pinned memory",
	} {
		if f := find(t, o, topic); f.Found != want || f.Status != OK {
			t.Errorf("%s: %q, want %q", topic, f.Found, want)
		}
	}
	if f := find(t, o, "cuBLAS"); f.Status != OK || !strings.HasSuffix(f.Found, "libcublas.so.12") {
		t.Errorf("cuBLAS: %+v", f)
	}
	if f := find(t, o, "cuSOLVER"); f.Status != Missing {
		t.Errorf("cuSOLVER: %+v", f)
	}
}

func TestAKernelModuleWithoutADriverLibraryIsSaid(t *testing.T) {
	o := machine(t, map[string]string{"proc/driver/nvidia/version": "NVRM version: 1\nGCC\n"})
	if f := find(t, o, "CUDA"); f.Status != Missing || f.Found != "cuda: libcuda.so.1 not found; the kernel module is there: NVRM version: 1" {
		t.Errorf("%+v", f)
	}
}

func TestUnlimitedGroupsHaveNoLimit(t *testing.T) {
	for _, files := range []map[string]string{
		{"sys/fs/cgroup/memory.max": "max", "sys/fs/cgroup/cpu.max": "max 100000"},
		{"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1"},
	} {
		o := machine(t, files)
		for _, topic := range []string{"memory limit", "CPU limit"} {
			if f := find(t, o, topic); f.Found != "none" {
				t.Errorf("%s: %s", topic, f.Found)
			}
		}
	}
}

func TestTheDoctorLeavesNothingBehind(t *testing.T) {
	folder := t.TempDir()
	Examine(Options{Folder: folder})
	if left, _ := os.ReadDir(folder); len(left) != 0 {
		t.Errorf("left %v", left)
	}
	if f := find(t, Options{Folder: filepath.Join(folder, "not", "yet")}, "disk"); f.Status == Missing {
		t.Errorf("a folder that does not exist yet: %+v", f)
	}
}

func TestTheMemoryLimitIsTheLeastThatHolds(t *testing.T) {
	const mem = "MemTotal: 1000 kB\nSwapTotal: 24 kB\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
		from  string
	}{
		"nothing known":  {nil, 0, ""},
		"the machine":    {map[string]string{"proc/meminfo": mem}, 1024 << 10, "MemTotal and SwapTotal of /proc/meminfo"},
		"no group limit": {map[string]string{"proc/meminfo": mem, "sys/fs/cgroup/memory.max": "max"}, 1024 << 10, "MemTotal and SwapTotal of /proc/meminfo"},
		"its own group": {map[string]string{"proc/meminfo": mem, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "4096", "sys/fs/cgroup/a/memory.max": "8192"},
			4096, "/sys/fs/cgroup/a/b/memory.max"},
		"a group above it": {map[string]string{"proc/meminfo": mem, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max", "sys/fs/cgroup/a/memory.max": "8192"},
			8192, "/sys/fs/cgroup/a/memory.max"},
		"version 1": {map[string]string{"proc/meminfo": mem, "proc/self/cgroup": "4:cpu,memory:/x\n1:name=systemd:/y\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "12288"},
			12288, "/sys/fs/cgroup/memory/x/memory.limit_in_bytes"},
	} {
		got, from := MemoryLimit(machine(t, c.files))
		if got != c.want || from != c.from {
			t.Errorf("%s: %d from %q, want %d from %q", name, got, from, c.want, c.from)
		}
	}
}
