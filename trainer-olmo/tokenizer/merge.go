package tokenizer

// shortWord is the length up to which a word is merged by scanning all its
// pairs; beyond it the scan's square cost exceeds that of a heap.
const shortWord = 48

// noRank stands for a pair that no merge joins.
const noRank = ^uint32(0)

// Note: one result, three ways. BPE is defined by: join the pair of lowest rank,
// leftmost on ties, until no pair has a rank. mergeShort does just that over
// arrays, which for a word of ordinary length is faster than any better bounded
// structure. merger does it with a heap, for the rare word of thousands of bytes
// (scripts without spaces, base64, runs of one character), on which a scan for
// every join would take minutes. The word cache, before both, answers for the
// words that make up most of a text. Tests hold all against the definition.

// mergeShort repeats: find the pair of lowest rank, leftmost on ties, join it.
func (t *tables) mergeShort(dst []uint32, word []byte) []uint32 {
	if len(word) == 0 {
		return dst
	}
	var ids, ranks, joined [shortWord]uint32
	n := len(word)
	for i, b := range word {
		ids[i] = t.byteID[b]
	}
	for i := range n - 1 {
		ranks[i], joined[i] = t.pairs.lookup(ids[i], ids[i+1])
	}
	for n > 1 {
		at, lowest := 0, noRank
		for i, r := range ranks[:n-1] {
			if r < lowest {
				at, lowest = i, r
			}
		}
		if lowest == noRank {
			break
		}
		// Close the gap, then look up the two pairs that the new token is part of.
		ids[at] = joined[at]
		copy(ids[at+1:n-1], ids[at+2:n])
		copy(ranks[at:n-1], ranks[at+1:n-1])
		copy(joined[at:n-1], joined[at+1:n-1])
		n--
		if at+1 < n {
			ranks[at], joined[at] = t.pairs.lookup(ids[at], ids[at+1])
		}
		if at > 0 {
			ranks[at-1], joined[at-1] = t.pairs.lookup(ids[at-1], ids[at])
		}
	}
	return append(dst, ids[:n]...)
}

// merger joins the pairs of a long word with a heap over a doubly linked list
// of symbols: n·log n, where a single word may be megabytes long.
type merger struct {
	symbols []symbol
	heap    []uint64 // rank<<32 | position: the least is the leftmost of the lowest rank
}

// symbol is one token of the word so far, linked by positions. A symbol that
// was joined to its left neighbour has next = gone.
type symbol struct {
	id         uint32
	prev, next int32
}

// gone differs from −1, the end of the list: a joined symbol starts no pair.
const gone = -2

// run appends the ids of word. An entry of the heap is stale when the pair at
// its position no longer has its rank; ranks name pairs, so the test is exact.
func (m *merger) run(dst []uint32, t *tables, word []byte) []uint32 {
	m.load(t, word)
	for len(m.heap) > 0 {
		top := m.pop()
		at := int32(uint32(top))
		s := &m.symbols[at]
		if s.next < 0 {
			continue
		}
		rank, id := t.pairs.lookup(s.id, m.symbols[s.next].id)
		if rank != uint32(top>>32) {
			continue // stale; the pair that is here now was offered when it arose
		}
		m.join(s, at, id)
		m.offer(t, s.prev)
		m.offer(t, at)
	}
	for at := int32(0); at >= 0; at = m.symbols[at].next {
		dst = append(dst, m.symbols[at].id)
	}
	return dst
}

// load makes one symbol of each byte and offers every pair.
func (m *merger) load(t *tables, word []byte) {
	m.symbols = m.symbols[:0]
	m.heap = m.heap[:0]
	for i, b := range word {
		m.symbols = append(m.symbols, symbol{id: t.byteID[b], prev: int32(i) - 1, next: int32(i) + 1})
	}
	m.symbols[len(word)-1].next = -1
	for i := range m.symbols {
		m.offer(t, int32(i))
	}
}

// join gives s the id of the pair and takes its right neighbour out of the list.
func (m *merger) join(s *symbol, at int32, id uint32) {
	right := &m.symbols[s.next]
	s.id, s.next = id, right.next
	right.next = gone
	if s.next >= 0 {
		m.symbols[s.next].prev = at
	}
}

// offer puts the pair that starts at a position on the heap, if a merge joins it.
func (m *merger) offer(t *tables, at int32) {
	if at < 0 || m.symbols[at].next < 0 {
		return
	}
	rank, _ := t.pairs.lookup(m.symbols[at].id, m.symbols[m.symbols[at].next].id)
	if rank != noRank {
		m.push(uint64(rank)<<32 | uint64(uint32(at)))
	}
}

// push and pop keep a binary heap with the least value on top. container/heap
// would call through an interface for each comparison, and allocate.
func (m *merger) push(v uint64) {
	m.heap = append(m.heap, v)
	i := len(m.heap) - 1
	for i > 0 {
		up := (i - 1) / 2
		if m.heap[up] <= v {
			break
		}
		m.heap[i] = m.heap[up]
		i = up
	}
	m.heap[i] = v
}

// pop returns the least value, moving the last one down to its place.
func (m *merger) pop() uint64 {
	h := m.heap
	top, last := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	m.heap = h
	for i := 0; ; {
		child := 2*i + 1
		if child >= len(h) {
			if len(h) > 0 {
				h[i] = last
			}
			return top
		}
		if child+1 < len(h) && h[child+1] < h[child] {
			child++
		}
		if last <= h[child] {
			h[i] = last
			return top
		}
		h[i] = h[child]
		i = child
	}
}

// pairTable maps a pair of ids to the rank and the id of its merge: open
// addressing with linear probing, at most half full, 16 bytes a slot.
type pairTable struct {
	slots []pairSlot
	shift uint // 64 − log2 of the number of slots
}

// pairSlot is one place of the table.
type pairSlot struct {
	pair     uint64 // left<<32 | right; emptyPair when free
	rank, id uint32
}

// emptyPair cannot be a pair: ids are below 2^31.
const emptyPair = ^uint64(0)

// fibonacci is 2^64 divided by the golden ratio: it spreads consecutive keys.
const fibonacci = 0x9e3779b97f4a7c15

// newPairTable has room for n pairs at a load of at most one half.
func newPairTable(n int) pairTable {
	bits := uint(4)
	for 1<<bits < 2*n {
		bits++
	}
	p := pairTable{slots: make([]pairSlot, 1<<bits), shift: 64 - bits}
	for i := range p.slots {
		p.slots[i].pair = emptyPair
	}
	return p
}

// lookup returns noRank for a pair that no merge joins. It ends because half of
// the slots are free.
func (p *pairTable) lookup(left, right uint32) (rank, id uint32) {
	pair := uint64(left)<<32 | uint64(right)
	mask := uint64(len(p.slots) - 1)
	for i := pair * fibonacci >> p.shift; ; i = (i + 1) & mask {
		switch s := &p.slots[i&mask]; s.pair {
		case pair:
			return s.rank, s.id
		case emptyPair:
			return noRank, 0
		}
	}
}

// insert reports the rank of an earlier merge of the same pair, if there is one.
func (p *pairTable) insert(left, right, rank, id uint32) (earlier uint32, ok bool) {
	pair := uint64(left)<<32 | uint64(right)
	mask := uint64(len(p.slots) - 1)
	i := pair * fibonacci >> p.shift
	for p.slots[i].pair != emptyPair {
		if p.slots[i].pair == pair {
			return p.slots[i].rank, false
		}
		i = (i + 1) & mask
	}
	p.slots[i] = pairSlot{pair: pair, rank: rank, id: id}
	return 0, true
}
