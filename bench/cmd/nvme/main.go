// Command nvme measures nvmepage beside fio: blocks of the same size, as many in
// flight, direct I/O in the same folder, fio and our engines in turn, so that a
// change of the drive's mood meets all of them. Nobody flushes: fio ends a write when
// the drive has it, and so does Save.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/asteria-runtime/asteria/bench/internal/load"
	"github.com/asteria-runtime/asteria/bench/internal/profile"
)

type options struct {
	dir, fio, json string
	profile        string
	sizes, depths  string
	rounds, align  int
	span, move     int64
	quick          bool

	mem []byte // see memory
}

func main() {
	var o options
	flag.StringVar(&o.dir, "dir", "../.cache/bench/nvme", "`folder` on the drive to measure; made if missing")
	flag.StringVar(&o.fio, "fio", "fio", "the fio `program`")
	flag.StringVar(&o.json, "json", "", "write the numbers to `file`")
	flag.StringVar(&o.sizes, "sizes", "64,1024,4096", "block sizes in KiB")
	flag.StringVar(&o.depths, "depths", "1,4,16", "requests in flight")
	flag.IntVar(&o.rounds, "rounds", 15, "rounds of each comparison")
	flag.IntVar(&o.align, "align", 0, "`bytes` to which our pages are aligned; 0 asks the system")
	flag.Int64Var(&o.span, "span", 128, "MiB of the drive that are written and read")
	flag.Int64Var(&o.move, "move", 64, "MiB that one contender moves in a round: little, so that a drive's mood lasts longer than a round")
	flag.StringVar(&o.profile, "cpuprofile", "", "write a profile of our side to `file`")
	flag.BoolVar(&o.quick, "quick", false, "five rounds, 1 MiB and 4 MiB at depths 1 and 16")
	flag.Parse()
	if o.quick {
		o.rounds, o.sizes, o.depths = 5, "1024,4096", "1,16"
	}
	runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), runtime.NumCPU()+2)) // as the trainer's command has it
	if err := profile.Run(o.profile, func() error { return run(&o) }); err != nil {
		fmt.Fprintln(os.Stderr, "nvme:", err)
		os.Exit(1)
	}
}

// report is what -json writes.
type report struct {
	Warning string `json:",omitempty"`
	Missing string `json:",omitempty"` // why fio is left out
	Fio     string `json:",omitempty"` // its version
	Direct  bool
	Align   int // bytes, as the system says
	Rows    []*row
}

func run(o *options) (err error) {
	sizes, err := numbers("-sizes", o.sizes)
	if err != nil {
		return err
	}
	depths, err := numbers("-depths", o.depths)
	if err != nil {
		return err
	}
	o.mem = memory(slices.Concat(sizes, []int64{1024}), depths) // the first store, which asks what the drive is, has one of 1 MiB
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return err
	}
	rep := &report{Warning: load.Warning()}
	us, err := openOurs(o.dir, o.align, 1<<20, 1, 1<<20, enginePool, o.mem)
	if err != nil {
		return err
	}
	st := us.store.Stats()
	rep.Direct, rep.Align = st.Direct, st.Align
	if err := us.close(); err != nil {
		return err
	}
	them, err := newFio(o, rep.Direct)
	if err != nil {
		rep.Missing = err.Error()
	} else {
		rep.Fio = them.version
		defer func() { err = errors.Join(err, them.close()) }()
	}
	rep.printHead(os.Stdout)
	for _, size := range sizes {
		for _, depth := range depths {
			rows, err := measure(o, them, size<<10, int(depth))
			if err != nil {
				return err
			}
			for _, r := range rows {
				r.print(os.Stdout)
			}
			rep.Rows = append(rep.Rows, rows...)
		}
	}
	rep.printEnd(os.Stdout)
	if o.json == "" {
		return nil
	}
	text, err := json.MarshalIndent(rep, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(o.json, append(text, '\n'), 0o644)
}

func numbers(name, list string) ([]int64, error) {
	var out []int64
	for word := range strings.SplitSeq(list, ",") {
		n, err := strconv.ParseInt(word, 10, 32)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%s=%s: %q: want whole numbers from 1 on, with commas between", name, list, word)
		}
		out = append(out, n)
	}
	return out, nil
}
