package kron

import (
	"fmt"
	"math"

	"github.com/asteria-runtime/asteria/gemm"
)

// mode is one side of a block: storage seen from it has shape pre×dim×post.
type mode struct {
	dim, pre, post int
	factored       bool
	exponent       float64 // Shampoo's power of this side
	clamp          float64 // KL's bound on a gain, +Inf without one
}

// others returns how many elements share one index of the mode.
func (md mode) others() int { return md.pre * md.post }

// Block is the fixed description of one tile of a parameter: its sides, its
// sections and its options. It owns no memory, never changes after [NewBlock],
// and is safe for concurrent use with different states.
type Block[T gemm.Float] struct {
	name     string
	dims     [MaxOrder]int // as the views give them, right-aligned
	size     int
	order    int // sides that count, after dropping unit sides
	modes    [MaxOrder]mode
	diagonal bool // KL with fewer than two sides: plain Adam
	opts     Options
	layout   Layout
}

// NewBlock describes a block of the given sides, order 0 to 3. Sides of length
// one (see Options.UnitFactors) and sides above Options.MaxDim have no factor;
// a block without any follows its method's diagonal rule.
func NewBlock[T gemm.Float](name string, dims []int, opts Options) (*Block[T], error) {
	if err := opts.Validate(); err != nil {
		return nil, fmt.Errorf("kron: block %s: %w", name, err)
	}
	if len(dims) > MaxOrder {
		return nil, fmt.Errorf("kron: block %s: order %d, want at most %d", name, len(dims), MaxOrder)
	}
	b := &Block[T]{name: name, dims: [MaxOrder]int{1, 1, 1}, opts: opts.defaults()}
	for i, d := range dims {
		if d < 0 {
			return nil, fmt.Errorf("kron: block %s: side %d is %d", name, i, d)
		}
		b.dims[MaxOrder-len(dims)+i] = d
	}
	b.size = product(dims)
	b.setModes(dims)
	b.layout = b.buildLayout()
	return b, nil
}

// setModes decides which sides count and which of them get a factor.
func (b *Block[T]) setModes(dims []int) {
	for _, d := range dims {
		if d != 1 || b.opts.UnitFactors {
			b.modes[b.order].dim = d
			b.order++
		}
	}
	b.diagonal = b.opts.Method.kl() && b.order < 2
	pre := 1
	for k := range b.order {
		md := &b.modes[k]
		md.pre, md.post = pre, 1
		for j := k + 1; j < b.order; j++ {
			md.post *= b.modes[j].dim
		}
		pre *= md.dim
		md.exponent = b.exponent(k)
		md.clamp = b.clamp(md.dim)
		md.factored = !b.opts.NoFactor[k] && b.factored(*md)
	}
}

func (b *Block[T]) exponent(k int) float64 {
	if v := b.opts.Exponents[b.order][k]; v != 0 {
		return v
	}
	return 1 / (2 * float64(b.order))
}

func (b *Block[T]) clamp(dim int) float64 {
	if b.opts.NoClamp {
		return math.Inf(1)
	}
	return max(10, min(float64(dim), b.opts.MaxClamp))
}

func (b *Block[T]) factored(md mode) bool {
	switch {
	case b.size == 0, md.dim > b.opts.MaxDim, b.diagonal:
		return false
	case b.opts.Method == Shampoo:
		return md.exponent > 0
	case b.opts.Method == SOAP && b.order == 1:
		return b.opts.Precondition1D
	}
	return true
}

// buildLayout lists factors, roots or bases, gains, then the moments.
func (b *Block[T]) buildLayout() Layout {
	var l Layout
	add := func(kind Kind, k, n int) {
		if n > 0 {
			l.Sections = append(l.Sections, Section{Kind: kind, Mode: k, Len: n})
		}
	}
	root := KindRoot
	if b.opts.Method.basis() {
		root = KindBasis
	}
	for k, md := range b.modes[:b.order] {
		if md.factored {
			add(KindFactor, k, md.dim*md.dim)
			add(root, k, md.dim*md.dim)
		}
		if md.factored && b.opts.Method.kl() {
			add(KindGain, k, md.dim)
		}
	}
	if b.opts.Betas[0] != 0 {
		add(KindMomentum, -1, b.size)
	}
	if b.hasSecond() {
		add(KindSecond, -1, b.size)
	}
	if b.hasGraft() {
		add(KindGraft, -1, b.size)
	}
	return l
}

func (b *Block[T]) hasSecond() bool {
	switch b.opts.Method {
	case Shampoo:
		return false
	case KLShampoo:
		return b.diagonal
	}
	return true
}

func (b *Block[T]) hasGraft() bool {
	family := b.opts.Method == Shampoo || b.opts.Method == EigenShampoo
	t := b.opts.Graft.Type
	return family && t != GraftNone && t != GraftSGD
}

// Name returns the name given to NewBlock.
func (b *Block[T]) Name() string { return b.name }

// Len returns the number of elements.
func (b *Block[T]) Len() int { return b.size }

// Options returns the options with their defaults filled in.
func (b *Block[T]) Options() Options { return b.opts }

// Layout lists the sections of the block's state.
func (b *Block[T]) Layout() Layout { return b.layout }

// Modes returns the number of sides that count; factors are indexed below it.
func (b *Block[T]) Modes() int { return b.order }

// FactorOrder returns the order of the factor of mode, 0 when it has none.
func (b *Block[T]) FactorOrder(mode int) int {
	if mode < b.order && b.modes[mode].factored {
		return b.modes[mode].dim
	}
	return 0
}

// Factored reports whether any side has a factor.
func (b *Block[T]) Factored() bool {
	for k := range b.order {
		if b.modes[k].factored {
			return true
		}
	}
	return false
}

// RefreshCost is the sum of n³ over the factors' orders: what a refresh costs
// up to a constant, for balancing phases.
func (b *Block[T]) RefreshCost() int64 {
	cost := int64(0)
	for k := range b.order {
		n := int64(b.FactorOrder(k))
		cost += n * n * n
	}
	return cost
}

// StepCost estimates the floating-point operations of one step.
func (b *Block[T]) StepCost() float64 {
	cost := 10.0
	for k := range b.order {
		cost += 6 * float64(b.FactorOrder(k))
	}
	return cost * float64(b.size)
}

// AdoptionCost estimates the floating-point operations, and copies of an element,
// that one refresh costs the steps around it: its snapshot and its adoption.
func (b *Block[T]) AdoptionCost() float64 {
	cost := 0.0
	for k := range b.order {
		n := float64(b.FactorOrder(k))
		if n == 0 {
			continue
		}
		cost += 2 * n * n
		if b.rotates() {
			products := 2.0 // by way of the original space
			if b.needsRotation(k) {
				products = 1
			}
			cost += products * 2 * n * float64(b.size)
		}
	}
	return cost
}

// Bind attaches the caller's slices, one per section of b.Layout() in its
// order, and counters. Contents are kept: a new block needs [Block.Reset].
func (b *Block[T]) Bind(sections [][]T, meta *Meta) (*State[T], error) {
	if len(sections) != len(b.layout.Sections) || meta == nil {
		return nil, fmt.Errorf("kron: block %s: %d sections and meta %v, want %d and counters", b.name, len(sections), meta != nil, len(b.layout.Sections))
	}
	st := &State[T]{Meta: meta}
	for i, s := range b.layout.Sections {
		if len(sections[i]) != s.Len {
			return nil, fmt.Errorf("kron: block %s: section %s has %d elements, want %d", b.name, s.Name(), len(sections[i]), s.Len)
		}
		*st.section(s) = sections[i]
	}
	return st, nil
}

// Reset brings st to the state before the first step: factors and moments
// zero, roots and bases the identity, gains 1/sqrt(InitFactor).
func (b *Block[T]) Reset(st *State[T]) {
	*st.Meta = Meta{}
	for _, s := range b.layout.Sections {
		x := st.Section(s)
		clear(x)
		switch s.Kind {
		case KindRoot, KindBasis:
			for i, n := 0, b.modes[s.Mode].dim; i < n; i++ {
				x[i*n+i] = 1
			}
		case KindGain:
			for i := range x {
				x[i] = T(1 / math.Sqrt(b.opts.InitFactor))
			}
		}
	}
}

// square views x as the n×n matrix of mode k.
func (b *Block[T]) square(k int, x []T) gemm.Matrix[T] {
	n := b.modes[k].dim
	return gemm.Matrix[T]{Rows: n, Cols: n, Stride: n, Data: x}
}

// Due reports whether a refresh falls on the block's adoption point now, that
// is after [Block.Begin] counted this step: at the first opportunity, and then
// every Options.Every effective steps at Options.Phase.
func (b *Block[T]) Due(m *Meta) bool { return b.due(m.Calls(), m.Step()) }

// DueNext reports what [Block.Due] will report after the next [Block.Begin], for
// callers that must have the snapshot's memory ready by then.
func (b *Block[T]) DueNext(m *Meta) bool {
	if b.opts.Method.late() && m.Calls() == 0 {
		return b.due(1, m.Step()) // the first call only makes the basis
	}
	return b.due(m.Calls()+1, m.Step()+1)
}

func (b *Block[T]) due(calls, t int64) bool {
	if !b.Factored() {
		return false
	}
	hit := t%b.opts.Every == b.opts.Phase
	if b.opts.Method.late() {
		return calls == 1 || (t > 0 && hit)
	}
	return t == b.opts.Start || (t > b.opts.Start && hit)
}

// First reports whether the refresh due now must finish within this step
// because nothing is installed yet that the step could use instead.
func (b *Block[T]) First(m *Meta) bool {
	for k := range b.order {
		if b.modes[k].factored && m.Version(k) == 0 {
			return true
		}
	}
	return false
}

// SnapshotFirst reports the order inside the adoption point: snapshot before
// adoption (Shampoo and EigenShampoo), or after it (SOAP and KL, so that a
// snapshot is always taken against the installed basis).
func (b *Block[T]) SnapshotFirst() bool { return !b.opts.Method.late() }
