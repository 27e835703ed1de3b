package doctor

import (
	"fmt"
	"path"
	"strings"
)

// MemoryLimit is the memory that a process here can have at most, in bytes: the
// least limit of its control groups, or else RAM and swap together. from says
// which. It is 0 where the system does not tell.
func MemoryLimit(o Options) (bytes int64, from string) {
	o = o.withDefaults()
	if text, err := o.read("/proc/meminfo"); err == nil {
		if total := meminfo(text, "MemTotal"); total > 0 {
			bytes, from = total+meminfo(text, "SwapTotal"), "MemTotal and SwapTotal of /proc/meminfo"
		}
	}
	for _, file := range memoryLimitFiles(o) {
		text, err := o.read(file)
		var n int64
		if err != nil || text == "max" {
			continue
		}
		if _, err := fmt.Sscan(text, &n); err == nil && n > 0 && (bytes == 0 || n < bytes) {
			bytes, from = n, file
		}
	}
	return bytes, from
}

// memoryLimitFiles are the limits of the process's control groups, versions 2 and
// 1, from its own group up to the root: each of them holds.
func memoryLimitFiles(o Options) (files []string) {
	text, _ := o.read("/proc/self/cgroup")
	groups := map[string]string{"/sys/fs/cgroup|memory.max": "/", "/sys/fs/cgroup/memory|memory.limit_in_bytes": "/"}
	for line := range strings.Lines(text) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, ok := strings.Cut(rest, ":")
		switch {
		case !ok:
		case controllers == "":
			groups["/sys/fs/cgroup|memory.max"] = group
		case strings.Contains(","+controllers+",", ",memory,"):
			groups["/sys/fs/cgroup/memory|memory.limit_in_bytes"] = group
		}
	}
	for _, key := range []string{"/sys/fs/cgroup|memory.max", "/sys/fs/cgroup/memory|memory.limit_in_bytes"} {
		root, file, _ := strings.Cut(key, "|")
		for group := path.Clean("/" + groups[key]); ; group = path.Dir(group) {
			files = append(files, path.Join(root, group, file))
			if group == "/" {
				break
			}
		}
	}
	return files
}
