package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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
	return Options{Root: root, Folder: t.TempDir(), Getenv: func(string) string { return "" }}
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
	if f := find(t, o, "CUDA"); f.Found != "libcuda.so.1 not found" {
		t.Errorf("CUDA: %s", f.Found)
	}
}

func TestWhatIsThereIsFound(t *testing.T) {
	o := machine(t, map[string]string{
		"proc/meminfo":      "MemTotal:       16384000 kB\nMemFree: 1 kB\nMemAvailable:    8192000 kB\n",
		"proc/self/cgroup":  "0::/user.slice/a\n",
		"usr/lib/libmpi.so": "", "opt/x/libcuda.so.1": "", "dev/nvidia0": "",
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
		"CUDA": "/opt/x/libcuda.so.1 NVRM version: 1",
	} {
		if f := find(t, o, topic); f.Found != want || f.Status != OK {
			t.Errorf("%s: %q, want %q", topic, f.Found, want)
		}
	}
	if f := find(t, o, "MPI"); f.Status != OK || !strings.HasSuffix(f.Found, "libmpi.so, started as one of 4 ranks") {
		t.Errorf("MPI: %s", f.Found)
	}
}

func TestHalfOfCUDAIsNotCUDA(t *testing.T) {
	o := machine(t, map[string]string{"dev/nvidia0": ""})
	if f := find(t, o, "CUDA"); f.Status != Missing || !strings.Contains(f.Found, "no driver libcuda.so.1") {
		t.Errorf("%+v", f)
	}
	o = machine(t, map[string]string{"usr/lib64/libcuda.so.1": ""})
	if f := find(t, o, "CUDA"); f.Status != Missing || !strings.Contains(f.Found, "no device") {
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
