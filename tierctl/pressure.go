package tierctl

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// SystemPressure reads how short of memory the system is, from Linux's pressure
// stall information and the memory controller of the control group (version 2) that
// proc/self/cgroup names, below fsys (os.DirFS("/") on a real system). It returns the
// part of the capacity to give up, 0 to 1: 0 below a tenth of a percent of stalled
// time and above a tenth of the group's limit free, growing to 1/2 from there. Pages
// of files that are not in use are no part of what the group uses: the system takes
// them back first. Where the system has neither file the error matches
// errors.ErrUnsupported.
func SystemPressure(fsys fs.FS) (float64, error) {
	stall, err1 := stalled(fsys)
	group, err2 := groupFill(fsys)
	if err1 != nil && err2 != nil {
		return 0, fmt.Errorf("tierctl: memory pressure: looked for proc/pressure/memory (%v) and sys/fs/cgroup/memory.max (%v): %w",
			err1, err2, errors.ErrUnsupported)
	}
	// 10 % of the time stalled, or a full group, asks for half of the memory.
	part := max(ramp(stall, 0.1, 10), ramp(group, 0.9, 1))
	return part / 2, nil
}

// ramp is 0 at lo and below, 1 at hi and above, linear between.
func ramp(x, lo, hi float64) float64 { return min(max((x-lo)/(hi-lo), 0), 1) }

// stalled returns the percentage of the last ten seconds in which some task waited
// for memory.
func stalled(fsys fs.FS) (float64, error) {
	data, err := fs.ReadFile(fsys, "proc/pressure/memory")
	if err != nil {
		return 0, err
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		rest, ok := strings.CutPrefix(lines.Text(), "some avg10=")
		if !ok {
			continue
		}
		number, _, _ := strings.Cut(rest, " ")
		return strconv.ParseFloat(number, 64)
	}
	return 0, errors.New("no line some avg10=")
}

// groupFill returns used memory of the control group as part of its limit.
func groupFill(fsys fs.FS) (float64, error) {
	group := "sys/fs/cgroup"
	limit, err := fs.ReadFile(fsys, path.Join(group, groupOf(fsys), "memory.max"))
	if err == nil {
		group = path.Join(group, groupOf(fsys))
	} else { // in a container its group may be mounted as the root
		limit, err = fs.ReadFile(fsys, path.Join(group, "memory.max"))
	}
	if err != nil {
		return 0, err
	}
	if strings.TrimSpace(string(limit)) == "max" {
		return 0, nil
	}
	used, err := fs.ReadFile(fsys, path.Join(group, "memory.current"))
	if err != nil {
		return 0, err
	}
	l, err1 := strconv.ParseFloat(strings.TrimSpace(string(limit)), 64)
	u, err2 := strconv.ParseFloat(strings.TrimSpace(string(used)), 64)
	if err := errors.Join(err1, err2); err != nil || l <= 0 {
		return 0, fmt.Errorf("memory.max %q, memory.current %q: want numbers of bytes", limit, used)
	}
	return max(0, u-idleFiles(fsys, group)) / l, nil
}

// groupOf is the path of the process's group below the root of the hierarchy of
// version 2, "" where it is not known.
func groupOf(fsys fs.FS) string {
	data, _ := fs.ReadFile(fsys, "proc/self/cgroup")
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "0::"); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// idleFiles is how much of a group's memory are pages of files that are not in use,
// 0 where the group does not tell.
func idleFiles(fsys fs.FS, group string) float64 {
	data, _ := fs.ReadFile(fsys, path.Join(group, "memory.stat"))
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "inactive_file "); ok {
			n, _ := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			return n
		}
	}
	return 0
}
