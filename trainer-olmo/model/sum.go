package model

import (
	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/gemm/vec"
)

// Note: the order of a gradient's sum. The rows of a global batch are cut into
// [Share].Groups groups. The rows of a group are added from left to right; groups are
// added as the leaves of a binary tree, see [gemm.MulTree] and [gemm.Meet]: ((g0+g1)+(g2+g3)). So the
// gradient has the same bits when ranks that hold whole subtrees add theirs in the
// order of the same tree, and however rows are cut into micro-batches.
//
// Partial sums wait on a stack for their neighbours, as a binary counter counts: level
// 0 is the gradient itself, the others are pending buffers, needed only when a group or
// a pair of them reaches over several calls (over several chunks of logits for the
// head). Each product that writes a gradient says for each run of rows which level
// takes it. Signs of zeros may differ.

// maxGroups bounds [Share].Groups, and with it the levels of a tree.
const (
	maxGroups = 1 << 10
	maxLevels = 12
)

// Share places a call's batch in the global batch whose gradient is summed. The zero
// value is a batch of its own, summed from left to right.
type Share struct {
	Groups      int // of the global batch: a power of two up to 1024; 0 = 1
	Rows        int // of the global batch
	First, Last int // rows that all calls of the step on this model add up
	At          int // of these, the first one of this call
}

// group is the one that holds a row: group g has the rows from Rows*g/Groups to before
// Rows*(g+1)/Groups.
func (s *Share) group(row int) int {
	if s.Groups <= 1 {
		return 0
	}
	return ((row+1)*s.Groups - 1) / s.Rows
}

// end is the row after the last one of a group here.
func (s *Share) end(group int) int {
	if s.Groups <= 1 {
		return s.Last
	}
	return min(s.Last, s.Rows*(group+1)/s.Groups)
}

// sumOp says what becomes of a run of rows of the batch.
type sumOp struct {
	first, rows int
	level       int  // that takes their sum
	add         bool // to what the level holds
	tree        bool // they are whole groups, summed on their own; otherwise row after row onto the level
	merges      int  // then so many levels are added to the ones before them, the last first
}

// sumPlan finds the operations of one call after the other.
type sumPlan struct {
	share Share
	fresh bool // level 0 holds nothing at first
	last  [maxLevels]int
	n     int // levels that hold something; last is the group that each got last
	most  int // levels so far
	ops   []sumOp
}

// start begins the sum of a step. What level 0 holds without fresh is its first
// operand.
func (p *sumPlan) start(s Share, fresh bool) {
	p.share, p.fresh, p.n = s, fresh, 0
	if s.Groups <= 1 && !fresh {
		p.last[0], p.n = 0, 1
	}
}

// next plans rows [lo, hi) of the global batch, the last of them to its end or, if not
// whole, a part of it only.
func (p *sumPlan) next(lo, hi int, whole bool) {
	p.ops = p.ops[:0]
	for at := lo; at < hi; {
		op, group := sumOp{first: at - lo}, p.share.group(at)
		end, last := p.extent(at, hi, whole)
		if end == at { // the group goes on in another call, or began in an earlier one
			end, last = min(hi, p.share.end(group)), group
		} else {
			op.tree = true
		}
		op.rows = end - at
		next := p.after(end, hi, whole)
		p.place(&op, last, next)
		for ; p.n > 1 && gemm.Meet(p.last[p.n-2], p.last[p.n-1], next); p.n-- {
			p.last[p.n-2] = p.last[p.n-1]
			op.merges++
		}
		p.ops = append(p.ops, op)
		at = end
	}
}

// place chooses the level of rows whose last group is given.
func (p *sumPlan) place(op *sumOp, last, next int) {
	switch {
	case p.n > 0 && p.last[p.n-1] == last:
		op.level, op.add = p.n-1, true
	case p.n > 0 && op.tree && gemm.Meet(p.last[p.n-1], last, next):
		op.level, op.add = p.n-1, true
		p.last[p.n-1] = last
	default:
		op.level, op.add = p.n, p.n == 0 && !p.fresh
		p.last[p.n] = last
		p.n++
	}
	p.most = max(p.most, p.n)
}

// extent returns the end of the longest run of whole groups from row at to before hi
// that are one subtree by themselves, and the last of them; at itself without any.
func (p *sumPlan) extent(at, hi int, whole bool) (end, last int) {
	first, end := p.share.group(at), at
	if p.n > 0 && p.last[p.n-1] == first {
		return at, first
	}
	for e := at; e < hi; {
		group := p.share.group(e)
		e = p.share.end(group)
		if e > hi || e == hi && !whole || p.n > 0 && !gemm.Meet(first, group, p.last[p.n-1]) {
			break
		}
		if gemm.Meet(first, group, p.after(e, hi, whole)) {
			end, last = e, group
		}
	}
	return end, last
}

// after is the group of the rows after row end-1, -1 when all are summed.
func (p *sumPlan) after(end, hi int, whole bool) int {
	switch {
	case end == hi && !whole:
		return p.share.group(end - 1)
	case end == p.share.Last:
		return -1
	}
	return p.share.group(end)
}

// Sums is what of partial sums a step keeps beside the gradients.
type Sums struct {
	// Levels are pending buffers of all gradients but the head's, HeadLevels those of
	// the head's.
	Levels, HeadLevels int
	// Apart says that the gradient of tied embeddings as a table of tokens is summed
	// apart from their gradient as the head, to which [Model.JoinGrads] adds it.
	Apart bool
}

// SumsFor is what calls of up to micro sequences of seq tokens each need for a share.
// Alone says that nobody else has a share.
func SumsFor(c Config, s Share, seq, micro int, alone bool) Sums {
	var body, head sumPlan
	body.start(s, true)
	head.start(s, true)
	for at := s.First; at < s.Last; at += micro {
		rows := min(micro, s.Last-at)
		body.next(at, at+rows, true)
		eachChunk(rows, seq, c.VocabSize, func(first, n int) {
			head.next(at+first/seq, at+(first+n+seq-1)/seq, (first+n)%seq == 0)
		})
	}
	return Sums{
		Levels: max(0, body.most-1), HeadLevels: max(0, head.most-1),
		Apart: c.TieWordEmbeddings && (!alone || s.Last-s.First > micro),
	}
}

// Max is what suffices for both.
func (s Sums) Max(o Sums) Sums {
	return Sums{max(s.Levels, o.Levels), max(s.HeadLevels, o.HeadLevels), s.Apart || o.Apart}
}

// Elements is the size of the buffers, in elements of the model's type.
func (s Sums) Elements(c Config) int64 {
	n, _ := c.ParamCount()
	head := int64(c.VocabSize) * int64(c.DModel)
	if !c.TieWordEmbeddings {
		n -= head
	}
	n = n*int64(s.Levels) + head*int64(s.HeadLevels)
	if s.Apart {
		n += head
	}
	return n
}

// ReserveSums allocates what a step keeps of partial sums, before the first step and
// [Model.GradSpans]. Calls that turn out to need more levels allocate them.
func (m *Model[T]) ReserveSums(s Sums) {
	head := m.out.value.Rows * m.out.value.Cols
	body := len(m.grads)
	if !m.cfg.TieWordEmbeddings {
		body = m.out.at
	}
	for len(m.pending) < s.Levels {
		m.pending = append(m.pending, gemm.OnHugePages(make([]T, body)))
	}
	for len(m.pendingHead) < s.HeadLevels {
		m.pendingHead = append(m.pendingHead, gemm.OnHugePages(make([]T, head)))
	}
	if s.Apart && m.lookup == nil {
		m.lookup = gemm.OnHugePages(make([]T, head))
	}
}

// JoinGrads ends a step's sum, after that over other replicas.
func (m *Model[T]) JoinGrads() {
	if m.lookup != nil {
		m.run.addLevel(m.embed.grad.Data, m.lookup)
	}
}

// level is where a level of a tensor's gradient lies.
func (m *Model[T]) level(t tensor[T], level int) gemm.Matrix[T] {
	g := t.grad
	switch {
	case level == 0:
	case t.head:
		g.Data = m.pendingHead[level-1]
	default:
		g.Data = m.pending[level-1][t.at:][:len(g.Data)]
	}
	return g
}

// vectorLevel is level for a norm's weight.
func (m *Model[T]) vectorLevel(v vector[T], level int) []T {
	if level == 0 {
		return v.grad
	}
	return m.pending[level-1][v.at:][:len(v.grad)]
}

// lookupLevel is level for the gradient of the embeddings as a table of tokens.
func (m *Model[T]) lookupLevel(level int) gemm.Matrix[T] {
	g := m.embed.grad
	switch {
	case level > 0:
		g.Data = m.pending[level-1][:len(g.Data)]
	case m.lookup != nil:
		g.Data = m.lookup
	}
	return g
}

// addChunk is the number of elements in one task of addTask.
const addChunk = 1 << 15

// addTask adds src to dst.
type addTask[T gemm.Float] struct{ dst, src []T }

func (t *addTask[T]) Do(chunk, _ int) {
	lo := chunk * addChunk
	hi := min(lo+addChunk, len(t.dst))
	vec.Add(t.dst[lo:hi], t.dst[lo:hi], t.src[lo:hi])
}

func (p *pass[T]) addLevel(dst, src []T) {
	p.adds = addTask[T]{dst, src}
	p.m.eng.Run((len(dst)+addChunk-1)/addChunk, &p.adds)
}

// mergeLevels adds pending levels of a tensor as an operation says.
func (p *pass[T]) mergeLevels(op *sumOp, t tensor[T]) {
	for l := op.level; l > op.level-op.merges; l-- {
		p.addLevel(p.m.level(t, l-1).Data, p.m.level(t, l).Data)
	}
}

// treeSum adds vectors of one width as the rows of groups.
type treeSum[T gemm.Float] struct {
	rows  []T // maxLevels of them
	width int
	last  [maxLevels]int
	n     int
}

func (t *treeSum[T]) row(level int) []T { return t.rows[level*t.width:][:t.width] }

// add adds x, which belongs to a group; the next vector belongs to next, -1 when x is
// the last one. Then the sum is row 0.
func (t *treeSum[T]) add(x []T, group, next int) {
	if t.n > 0 && t.last[t.n-1] == group {
		vec.Add(t.row(t.n-1), t.row(t.n-1), x)
	} else {
		copy(t.row(t.n), x)
		t.last[t.n] = group
		t.n++
	}
	for ; t.n > 1 && gemm.Meet(t.last[t.n-2], t.last[t.n-1], next); t.n-- {
		vec.Add(t.row(t.n-2), t.row(t.n-2), t.row(t.n-1))
		t.last[t.n-2] = t.last[t.n-1]
	}
}
