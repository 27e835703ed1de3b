package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// fio runs the program of that name on a file of its own.
type fio struct {
	program, file, version string
	span                   int64
	direct                 bool
}

// newFio finds the program and writes its file twice, as openOurs does with ours.
func newFio(o *options, direct bool) (*fio, error) {
	out, err := exec.Command(o.fio, "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("no fio: %w", err)
	}
	f := &fio{
		program: o.fio, file: filepath.Join(o.dir, "fio.data"), version: strings.TrimSpace(string(out)),
		span: o.span << 20, direct: direct,
	}
	if _, err := f.run("write", 1<<20, 4, 2*f.span); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *fio) close() error { return os.Remove(f.file) }

// run moves n bytes and returns bytes per second, by fio's own clock.
func (f *fio) run(way string, size int64, depth int, n int64) (float64, error) {
	direct := 0
	if f.direct {
		direct = 1
	}
	cmd := exec.Command(f.program, "--name=fio", "--filename="+f.file, "--rw="+way, "--ioengine=io_uring", "--thread",
		fmt.Sprint("--direct=", direct), fmt.Sprint("--bs=", size), fmt.Sprint("--iodepth=", depth),
		fmt.Sprint("--size=", f.span), fmt.Sprint("--io_size=", n),
		"--fallocate=none", "--gtod_reduce=1", "--output-format=json")
	cmd.Env = append(os.Environ(), "GLIBC_TUNABLES=glibc.malloc.hugetlb=1") // huge pages, as ours has: from 2 MiB in flight on
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("fio: %w: %s%s", err, out, stderr.Bytes())
	}
	return rateOf(out, way)
}

// rateOf reads fio's JSON, which notices may precede.
func rateOf(out []byte, way string) (float64, error) {
	type side struct {
		Bytes float64 `json:"bw_bytes"` // per second
	}
	var doc struct {
		Jobs []struct {
			Read  side `json:"read"`
			Write side `json:"write"`
			Error int  `json:"error"`
		} `json:"jobs"`
	}
	start := max(0, bytes.IndexByte(out, '{'))
	if err := json.Unmarshal(out[start:], &doc); err != nil {
		return 0, fmt.Errorf("fio's output: %w", err)
	}
	if len(doc.Jobs) != 1 || doc.Jobs[0].Error != 0 {
		return 0, fmt.Errorf("fio's output: %d jobs, want one without an error: %.200s", len(doc.Jobs), out)
	}
	rate := doc.Jobs[0].Read.Bytes
	if way == "write" {
		rate = doc.Jobs[0].Write.Bytes
	}
	if rate <= 0 {
		return 0, fmt.Errorf("fio's output: no %s rate", way)
	}
	return rate, nil
}
