package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/pflag"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/trainer-olmo/checkpoint"
	"github.com/asteria-runtime/asteria/trainer-olmo/doctor"
)

func digestCommand() command {
	return command{
		name: "digest", usage: "RUN|CHECKPOINT", min: 1, max: 1, run: runDigest,
		summary: "print a sha256 of a checkpoint's state, by section",
		help: `Of a run folder the newest checkpoint is taken. total covers weights, optimizer
and position: equal totals mean equal states, bit for bit. Every byte is read and
compared with the checksums that were saved.`,
		flags:    func(f *pflag.FlagSet) { f.Bool("json", false, "print JSON") },
		examples: []string{"digest runs/demo/soap", "digest runs/demo/soap/checkpoints/step100 --json"},
	}
}

func runDigest(_ context.Context, e *env) error {
	if !exists(e.args[0]) {
		return usagef("digest: %s: no such file or directory", e.args[0])
	}
	d, err := checkpoint.DigestDir(e.args[0])
	if err != nil {
		return err
	}
	if asJSON, _ := e.flags.GetBool("json"); asJSON {
		return json.NewEncoder(e.out).Encode(d)
	}
	_, err = fmt.Fprintln(e.out, d)
	return err
}

func doctorCommand() command {
	return command{
		name: "doctor", max: 0, run: runDoctor,
		summary:  "examine this machine: processor, memory, disks, libraries, devices",
		help:     "Marks: ok usable, -- not there, !! there and likely to disappoint.",
		flags:    func(f *pflag.FlagSet) { f.String("folder", ".", "folder in which runs will be saved") },
		examples: []string{"doctor", "doctor --folder /data/runs"},
	}
}

func runDoctor(_ context.Context, e *env) error {
	folder, _ := e.flags.GetString("folder")
	return doctor.Write(e.out, doctor.Examine(doctor.Options{Folder: folder}))
}

func versionCommand() command {
	return command{
		name: "version", max: 0, run: func(_ context.Context, e *env) error { return writeVersion(e.out) },
		summary:  "print the versions of the program, its modules, Go and the kernels",
		examples: []string{"version"},
	}
}

func writeVersion(w io.Writer) error {
	eng := gemm.New(1)
	defer eng.Close()
	var b strings.Builder
	fmt.Fprintf(&b, "trainer-olmo %s\n%s %s/%s\nkernels %s\n", revision(), runtime.Version(), runtime.GOOS, runtime.GOARCH, eng.Kernels())
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
			if m.Path != "" {
				fmt.Fprintf(&b, "%s %s\n", m.Path, moduleVersion(m))
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// moduleVersion is a module's version; one built from a working tree has none.
func moduleVersion(m *debug.Module) string {
	if m.Replace != nil {
		m = m.Replace
	}
	if m.Version == "" {
		return "(devel)"
	}
	return m.Version
}

// revision is the commit that the build recorded, when it did.
func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(unknown)"
	}
	out, dirty := moduleVersion(&info.Main), ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			out = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+changes"
		}
	}
	return out + dirty
}

// buildName is what checkpoints record about the program.
func buildName() string { return "trainer-olmo " + revision() + " " + runtime.Version() }
