package energy

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/asteria-runtime/asteria/trainer-olmo/energy/internal/nvml"
)

// Domain is what a counter covers.
type Domain uint8

const (
	Package Domain = iota // processor packages: cores, caches, memory controllers
	DRAM                  // memory modules, where the processor counts them
	GPU                   // boards of GPUs, their memory included

	// Domains is the number of domains.
	Domains = 3
)

var domainNames = [Domains]string{"package", "dram", "gpu"}

// String returns the word that metrics use.
func (d Domain) String() string {
	if int(d) < len(domainNames) {
		return domainNames[d]
	}
	return fmt.Sprintf("domain(%d)", uint8(d))
}

// GPUs counts the energy of graphics processors.
type GPUs interface {
	// Count is the number of devices.
	Count() int
	// Name says what device i is.
	Name(i int) string
	// Millijoules is what device i has used since its driver was loaded.
	Millijoules(i int) (uint64, error)
	// Close releases the library.
	Close() error
}

// Options say where counters are looked for. The zero value is this machine.
type Options struct {
	// FS is the root of the file system; nil means the operating system's.
	FS fs.FS
	// GPUs is used in place of NVIDIA's library; nil means to look for that.
	GPUs GPUs
	// NoGPUs leaves GPUs alone.
	NoGPUs bool
}

// Totals are joules since a meter was opened, by domain, summed over all counters
// of the domain.
type Totals struct {
	Joules [Domains]float64
	// Has tells which domains have a counter; the others' joules are 0.
	Has [Domains]bool
}

// Source is one counter that a meter reads.
type Source struct {
	Domain Domain
	Name   string // such as package-0, or the name of a GPU
}

// Meter adds up energy. See the package comment.
type Meter struct {
	zones   []*zone
	gpus    GPUs
	boards  []board
	refused []error
	totals  Totals
	buf     [32]byte
}

// board is a GPU that counts.
type board struct {
	index int
	last  uint64 // millijoules
}

// Open finds the counters of the machine. It does not fail: what is not there or
// not readable is absent, and [Meter.Refused] tells about the latter.
func Open(o Options) *Meter {
	if o.FS == nil {
		o.FS = os.DirFS("/")
	}
	m := &Meter{gpus: o.GPUs}
	m.zones, m.refused = openZones(o.FS)
	for _, z := range m.zones {
		m.totals.Has[z.domain] = true
	}
	if m.gpus == nil && !o.NoGPUs {
		m.openLibrary()
	}
	if o.NoGPUs {
		m.gpus = nil
	}
	m.openBoards()
	return m
}

// openLibrary looks for NVIDIA's library. A machine without it is no news.
func (m *Meter) openLibrary() {
	lib, err := nvml.Open()
	switch {
	case err == nil:
		m.gpus = lib
	case !errors.Is(err, errors.ErrUnsupported):
		m.refused = append(m.refused, err)
	}
}

// openBoards keeps the devices that count; GPUs before Volta do not.
func (m *Meter) openBoards() {
	if m.gpus == nil {
		return
	}
	for i := range m.gpus.Count() {
		now, err := m.gpus.Millijoules(i)
		if err != nil {
			m.refused = append(m.refused, fmt.Errorf("energy: GPU %d (%s): %w", i, m.gpus.Name(i), err))
			continue
		}
		m.boards = append(m.boards, board{i, now})
		m.totals.Has[GPU] = true
	}
}

// Refused tells of counters that exist and cannot be read, such as those of RAPL
// without the right to.
func (m *Meter) Refused() []error { return m.refused }

// Sources lists the counters that are read.
func (m *Meter) Sources() []Source {
	var out []Source
	for _, z := range m.zones {
		out = append(out, Source{z.domain, z.name})
	}
	for _, b := range m.boards {
		out = append(out, Source{GPU, m.gpus.Name(b.index)})
	}
	return out
}

// Sample reads every counter and returns the totals. A counter that cannot be read
// this time is caught up with at the next sample. It allocates nothing.
func (m *Meter) Sample() Totals {
	if m == nil {
		return Totals{}
	}
	for _, z := range m.zones {
		if now, err := z.read(&m.buf); err == nil {
			m.totals.Joules[z.domain] += float64(since(z.last, now, z.wrap)) / 1e6
			z.last = now
		}
	}
	for i := range m.boards {
		b := &m.boards[i]
		// A driver that was loaded anew counts from zero again.
		if now, err := m.gpus.Millijoules(b.index); err == nil {
			m.totals.Joules[GPU] += float64(since(b.last, now, 0)) / 1e3
			b.last = now
		}
	}
	return m.totals
}

// Close closes the counters. A nil meter has none.
func (m *Meter) Close() error {
	if m == nil {
		return nil
	}
	var errs []error
	for _, z := range m.zones {
		errs = append(errs, z.close())
	}
	if m.gpus != nil {
		errs = append(errs, m.gpus.Close())
	}
	m.zones, m.boards, m.gpus = nil, nil, nil
	return errors.Join(errs...)
}
