package data

import "math/bits"

// extent is a run of tokens of one file: [start, end).
type extent struct{ start, end int64 }

// length is the number of tokens.
func (e extent) length() int64 { return e.end - e.start }

// shorten applies a strategy to documents longer than limit: truncate drops the
// excess, fragment makes documents of it.
func shorten(dst []extent, doc extent, limit int64, strategy string) []extent {
	if strategy != LongFragment {
		return append(dst, extent{doc.start, min(doc.end, doc.start+limit)})
	}
	for at := doc.start; at < doc.end; at += limit {
		dst = append(dst, extent{at, min(doc.end, at+limit)})
	}
	return dst
}

// packing is the outcome of pack: docs in the order of decreasing length, and
// for each instance the indices of its documents in docs.
type packing struct {
	docs      []extent
	instances [][]int32
	tokens    int64
}

// pack distributes documents of 1 to limit tokens over instances of limit (a
// power of two) by optimized best-fit decreasing (Ding et al., arXiv
// 2404.10830, appendix B): each document goes to an instance with the least
// space that suffices, of several to the one that came to have it first.
func pack(docs []extent, limit int) packing {
	p := packing{docs: sortDecreasing(docs)}
	bins := newBins(limit)
	for i, d := range p.docs {
		p.tokens += d.length()
		bin := bins.place(int(d.length()), len(p.instances))
		if bin == len(p.instances) {
			p.instances = append(p.instances, nil)
		}
		p.instances[bin] = append(p.instances[bin], int32(i))
	}
	return p
}

// sortDecreasing orders documents as OLMo-core does: by numpy's argsort of the
// negative lengths. That sort is not stable, so that its very steps are part of
// the order; see argsort.
func sortDecreasing(docs []extent) []extent {
	keys := make([]int64, len(docs))
	for i, d := range docs {
		keys[i] = -d.length()
	}
	sorted := make([]extent, len(docs))
	for i, from := range argsort(keys) {
		sorted[i] = docs[from]
	}
	return sorted
}

// bins finds the instance for a document in log₂ limit steps: a segment tree
// over the free space 1…limit holds the largest space in use below each node, a
// queue for each space the instances that have it. A new instance has space
// limit, always, so that a search never fails.
//
// Searching by space instead of by instance is what makes best fit affordable:
// there are millions of instances and at most limit different spaces.
type bins struct {
	limit  int
	tree   []int   // node i has children 2i, 2i+1; leaf of space s is limit+s−1
	queues [][]int // instances by space
}

// newBins begins without instances: only a new one, of space limit, is there.
func newBins(limit int) *bins {
	b := &bins{limit: limit, tree: make([]int, 2*limit), queues: make([][]int, limit+1)}
	b.set(limit, limit)
	return b
}

// set marks a space as in use (value = space) or not (0).
func (b *bins) set(space, value int) {
	i := b.limit + space - 1
	b.tree[i] = value
	for i /= 2; i > 0; i /= 2 {
		b.tree[i] = max(b.tree[2*i], b.tree[2*i+1])
	}
}

// least returns the smallest space in use that is at least need.
func (b *bins) least(need int) int {
	i := 1
	for i < b.limit {
		i *= 2
		if b.tree[i] < need {
			i++
		}
	}
	return i - b.limit + 1
}

// place returns the instance for a document of the given length, which is fresh
// when no instance has room.
func (b *bins) place(length, fresh int) int {
	space := b.least(length)
	bin := fresh // the leaf limit stands for a new instance and keeps no queue
	if space < b.limit {
		bin = b.queues[space][0]
		b.queues[space] = b.queues[space][1:]
		if len(b.queues[space]) == 0 {
			b.set(space, 0)
		}
	}
	if left := space - length; left > 0 {
		if len(b.queues[left]) == 0 {
			b.set(left, left)
		}
		b.queues[left] = append(b.queues[left], bin)
	}
	return bin
}

// insertionLimit is the distance of the ends up to which numpy sorts a stretch
// by insertion.
const insertionLimit = 15

// argsort returns the permutation that numpy 1's introsort gives for keys: a
// median-of-three quicksort that takes the smaller side first, insertion for
// short stretches, heapsort when the depth exceeds twice log₂ n. Other versions
// of numpy (with AVX-512 sorts) order equal keys differently.
func argsort(keys []int64) []int {
	order := make([]int, len(keys))
	for i := range order {
		order[i] = i
	}
	if len(keys) > 1 {
		s := argsorter{keys: keys, order: order}
		s.sort(0, len(keys)-1, 2*(bits.Len(uint(len(keys)))-1))
	}
	return order
}

// argsorter sorts indices by their keys, in place.
type argsorter struct {
	keys  []int64
	order []int
}

// less and swap work on positions in the order, not on keys.
func (s argsorter) less(i, j int) bool { return s.keys[s.order[i]] < s.keys[s.order[j]] }
func (s argsorter) swap(i, j int)      { s.order[i], s.order[j] = s.order[j], s.order[i] }

// sort works on the closed range [lo, hi]. The sides of a partition are sorted
// independently, so that recursion gives the same order as numpy's stack.
func (s argsorter) sort(lo, hi, depth int) {
	if depth < 0 {
		s.heapsort(lo, hi)
		return
	}
	for hi-lo > insertionLimit {
		at := s.partition(lo, hi)
		depth-- // one budget for both sides, spent before they are looked at
		if at-lo < hi-at {
			s.sort(at+1, hi, depth)
			hi = at - 1
		} else {
			s.sort(lo, at-1, depth)
			lo = at + 1
		}
	}
	s.insertion(lo, hi)
}

// partition orders the first, middle and last element, takes the middle one as
// the pivot, hides it next to the end, and returns where it comes to stand. The
// ordered ends stop both scans, which therefore need no bounds check of their own.
func (s argsorter) partition(lo, hi int) int {
	mid := lo + (hi-lo)/2
	if s.less(mid, lo) {
		s.swap(mid, lo)
	}
	if s.less(hi, mid) {
		s.swap(hi, mid)
	}
	if s.less(mid, lo) {
		s.swap(mid, lo)
	}
	pivot := s.keys[s.order[mid]]
	i, j := lo, hi-1
	s.swap(mid, j)
	for {
		for i++; s.keys[s.order[i]] < pivot; i++ {
		}
		for j--; pivot < s.keys[s.order[j]]; j-- {
		}
		if i >= j {
			break
		}
		s.swap(i, j)
	}
	s.swap(i, hi-1)
	return i
}

// insertion is stable: equal keys keep the order they have.
func (s argsorter) insertion(lo, hi int) {
	for i := lo + 1; i <= hi; i++ {
		for j := i; j > lo && s.less(j, j-1); j-- {
			s.swap(j, j-1)
		}
	}
}

// heapsort builds a heap of the largest and takes it apart.
func (s argsorter) heapsort(lo, hi int) {
	n := hi - lo + 1
	for root := n/2 - 1; root >= 0; root-- {
		s.sift(lo, root, n)
	}
	for end := n - 1; end > 0; end-- {
		s.sinkTop(lo, end)
	}
}

// sift moves the element at root down to its place among the first n.
func (s argsorter) sift(lo, root, n int) {
	for {
		child := 2*root + 1
		if child >= n {
			return
		}
		if child+1 < n && s.less(lo+child, lo+child+1) {
			child++
		}
		if !s.less(lo+root, lo+child) {
			return
		}
		s.swap(lo+root, lo+child)
		root = child
	}
}

// sinkTop puts the largest at end and lets the former last element find its
// place.
func (s argsorter) sinkTop(lo, end int) {
	s.swap(lo, lo+end)
	s.sift(lo, 0, end)
}
