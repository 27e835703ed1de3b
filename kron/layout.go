package kron

import (
	"fmt"

	"github.com/asteria-runtime/asteria/gemm"
)

// Kind is what a section of a block's state holds.
type Kind uint8

const (
	KindFactor   Kind = iota // d×d statistics, lower triangle; the rest stays zero
	KindRoot                 // d×d inverse root
	KindBasis                // d×d eigenvectors in columns
	KindGain                 // d inverse square roots of a KL factor's eigenvalues
	KindMomentum             // first moment, one per element
	KindSecond               // second moment, in the eigenbasis where there is one
	KindGraft                // second moment of the grafted method
)

var kindNames = [...]string{"factor", "root", "basis", "gain", "momentum", "second", "graft"}

// String returns the word used in section names.
func (k Kind) String() string { return kindNames[k] }

// Section is one array of a block's state.
type Section struct {
	Kind Kind
	Mode int // which side it belongs to, -1 for the whole block
	Len  int // elements
}

// Name is unique within a block, such as "basis.0" or "momentum".
func (s Section) Name() string {
	if s.Mode < 0 {
		return s.Kind.String()
	}
	return fmt.Sprintf("%s.%d", s.Kind, s.Mode)
}

// Layout lists a block's sections in the order in which [Block.Bind] takes them.
type Layout struct{ Sections []Section }

// Len returns the elements of all sections.
func (l Layout) Len() int {
	n := 0
	for _, s := range l.Sections {
		n += s.Len
	}
	return n
}

// Cut divides mem, of at least l.Len() elements, into one slice per section.
func Cut[T gemm.Float](l Layout, mem []T) [][]T {
	out := make([][]T, len(l.Sections))
	for i, s := range l.Sections {
		out[i], mem = mem[:s.Len:s.Len], mem[s.Len:]
	}
	return out
}

// State is a block's state bound to slices that the caller owns. Slices of
// modes without a factor, and of what the method does not have, are nil. One
// goroutine at a time may use it.
type State[T gemm.Float] struct {
	Factor [MaxOrder][]T
	Root   [MaxOrder][]T // inverse roots or bases; Install exchanges them
	Gain   [MaxOrder][]T

	Momentum, Second, Graft []T
	Meta                    *Meta
}

// section returns the slot that s describes.
func (st *State[T]) section(s Section) *[]T {
	switch s.Kind {
	case KindFactor:
		return &st.Factor[s.Mode]
	case KindRoot, KindBasis:
		return &st.Root[s.Mode]
	case KindGain:
		return &st.Gain[s.Mode]
	case KindMomentum:
		return &st.Momentum
	case KindSecond:
		return &st.Second
	}
	return &st.Graft
}

// Section returns the slice now bound for s; after an adoption that exchanged
// buffers it is another slice than the one given to Bind.
func (st *State[T]) Section(s Section) []T { return *st.section(s) }

// Meta holds a block's counters and versions. It is an array of integers so
// that a checkpoint stores and restores it in place, through m[:].
type Meta [16]int64

// Indices into Meta. The order is part of the checkpoint format.
const (
	metaCalls       = iota // calls of Begin
	metaStep               // effective updates, t in the formulas
	metaVersion            // three: version of the installed result per mode
	metaAsOf        = 5    // three: call at which its snapshot was taken
	metaRefreshes   = 8    // results installed, at least in part
	metaFailed      = 9    // refreshes that failed in at least one mode
	metaConsecutive = 10   // of these, since the last full success
	metaDiscarded   = 11   // modes whose result came too late or from another basis
)

// Calls counts gradients seen.
func (m *Meta) Calls() int64 { return m[metaCalls] }

// Step counts effective updates; SOAP and KL spend the first call on their basis.
func (m *Meta) Step() int64 { return m[metaStep] }

// Version is that of the result installed for mode; 0 means none yet.
func (m *Meta) Version(mode int) uint64 { return uint64(m[metaVersion+mode]) }

// AsOf is the call whose statistics the installed result of mode reflects.
func (m *Meta) AsOf(mode int) int64 { return m[metaAsOf+mode] }

// Refreshes counts results adopted.
func (m *Meta) Refreshes() int64 { return m[metaRefreshes] }

// Failed counts failed refreshes over the block's life.
func (m *Meta) Failed() int64 { return m[metaFailed] }

// Consecutive counts failed refreshes since the last that succeeded.
func (m *Meta) Consecutive() int64 { return m[metaConsecutive] }

// Discarded counts results refused because their base was no longer installed.
func (m *Meta) Discarded() int64 { return m[metaDiscarded] }

// Check reports counters that no run can have produced, as after reading a
// damaged checkpoint.
func (m *Meta) Check() error {
	for i, v := range m {
		if v < 0 {
			return fmt.Errorf("kron: meta entry %d is %d, want 0 or more", i, v)
		}
	}
	if m.Step() > m.Calls() {
		return fmt.Errorf("kron: meta has step %d after %d calls", m.Step(), m.Calls())
	}
	for k := range MaxOrder {
		if m.AsOf(k) > m.Calls() {
			return fmt.Errorf("kron: meta has a result as of call %d after %d calls", m.AsOf(k), m.Calls())
		}
	}
	return nil
}
