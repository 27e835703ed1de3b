package energy

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
)

// powercap is the folder of the zones below the root of the file system. The
// kernel's format is described in its Documentation/power/powercap.
const powercap = "sys/class/powercap"

// zone is one RAPL counter.
type zone struct {
	name   string // such as package-0
	file   io.ReaderAt
	close  func() error
	wrap   uint64 // largest value in microjoules, 0 when the system does not say
	last   uint64
	domain Domain
}

// domainOf sorts a zone by its name. Zones inside a package (core, uncore) are
// part of it, and psys covers everything else again: neither is counted.
func domainOf(name string) (Domain, bool) {
	switch {
	case strings.HasPrefix(name, "package-"):
		return Package, true
	case name == "dram":
		return DRAM, true
	}
	return 0, false
}

// openZones opens every zone that counts. The second result tells of those that
// exist and cannot be read.
func openZones(fsys fs.FS) (zones []*zone, refused []error) {
	entries, err := fs.ReadDir(fsys, powercap)
	if err != nil {
		return nil, nil // no such tree: nothing to count, and nothing refused
	}
	for _, e := range entries {
		// intel-rapl-mmio shows the same packages by another register: not twice.
		if !strings.HasPrefix(e.Name(), "intel-rapl:") {
			continue
		}
		z, err := openZone(fsys, path.Join(powercap, e.Name()))
		if err != nil {
			refused = append(refused, err)
		}
		if z != nil {
			zones = append(zones, z)
		}
	}
	return zones, refused
}

// openZone opens the zone in a folder; it is nil without an error for a zone that
// is not counted.
func openZone(fsys fs.FS, dir string) (*zone, error) {
	name, err := fs.ReadFile(fsys, path.Join(dir, "name"))
	if err != nil {
		return nil, fmt.Errorf("energy: %w", err)
	}
	z := &zone{name: strings.TrimSpace(string(name))}
	counted := false
	if z.domain, counted = domainOf(z.name); !counted {
		return nil, nil
	}
	f, err := fsys.Open(path.Join(dir, "energy_uj"))
	if err != nil {
		return nil, fmt.Errorf("energy: %w", err)
	}
	at, ok := f.(io.ReaderAt)
	if !ok {
		return nil, errors.Join(fmt.Errorf("energy: %s/energy_uj cannot be read at an offset", dir), f.Close())
	}
	z.file, z.close = at, f.Close
	if z.last, err = z.read(new([32]byte)); err != nil {
		return nil, errors.Join(fmt.Errorf("energy: %s/energy_uj: %w", dir, err), f.Close())
	}
	if text, err := fs.ReadFile(fsys, path.Join(dir, "max_energy_range_uj")); err == nil {
		z.wrap, _ = parseMicrojoules(text)
	}
	return z, nil
}

// read returns the counter in microjoules. The system makes the text anew for
// every read from the start of the file.
func (z *zone) read(buf *[32]byte) (uint64, error) {
	n, err := z.file.ReadAt(buf[:], 0)
	if err != nil && err != io.EOF {
		return 0, err
	}
	return parseMicrojoules(buf[:n])
}

// errNumber says that a counter's file holds no number.
var errNumber = errors.New("not a whole number")

// parseMicrojoules reads digits up to a newline or the end. It allocates nothing.
func parseMicrojoules(text []byte) (uint64, error) {
	n, digits := uint64(0), 0
	for _, c := range text {
		if c == '\n' {
			break
		}
		if c < '0' || c > '9' || digits == 19 {
			return 0, errNumber
		}
		n = n*10 + uint64(c-'0')
		digits++
	}
	if digits == 0 {
		return 0, errNumber
	}
	return n, nil
}

// since returns the microjoules between two readings of a counter that goes back
// to zero after wrap. Without a known wrap a step back counts as nothing: too
// little is told rather than something made up.
func since(last, now, wrap uint64) uint64 {
	switch {
	case now >= last:
		return now - last
	case wrap >= last:
		return wrap - last + now
	}
	return 0
}
