package hiersync

import (
	"math/bits"
	"slices"
)

// Topology says which ranks share a node.
type Topology struct {
	// Nodes lists the ranks of each node in ascending order; nodes are ordered
	// by their lowest rank, which is the node's leader.
	Nodes [][]int
	// NodeOf is the index in Nodes for each rank.
	NodeOf []int
}

// newTopology groups ranks by the name of their node.
func newTopology(names []string) Topology {
	t := Topology{NodeOf: make([]int, len(names))}
	index := map[string]int{}
	for rank, name := range names {
		n, ok := index[name]
		if !ok {
			n = len(t.Nodes)
			index[name] = n
			t.Nodes = append(t.Nodes, nil)
		}
		t.Nodes[n] = append(t.Nodes[n], rank)
		t.NodeOf[rank] = n
	}
	return t
}

// Order lists the ranks from left to right in the order of summation: node by node,
// by rank inside a node.
func (t Topology) Order() []int { return slices.Concat(t.Nodes...) }

// Leader reports whether a rank is the lowest of its node.
func (t Topology) Leader(rank int) bool { return t.Nodes[t.NodeOf[rank]][0] == rank }

// view is the topology as the algorithms see it: groups that are linked among
// each other by one way each. The flat view has one group of all ranks.
//
// Note: order of summation. Sums are binary trees, first over the ranks of a node,
// then over the nodes, in Topology.Order. The flat view adds up all of it at one
// place. Else group g has the sum of the groups below it in the tree, [view.above]
// says at which group two sums meet, and the last group has the total. Additions
// are the same ones in both views. That is why Flat changes no bit.
type view struct {
	sum    [][]int // members of each group in the order of summation
	parts  [][]int // where the ranks of each node end in a group's sum
	tree   [][]int // members of each group in rank order, for trees
	group  []int   // group of each rank
	inSum  []int   // index of each rank in its group's sum
	inTree []int   // index of each rank in its group's tree
	slices int     // slices of a sum: size of the largest group
}

func newView(t Topology, flat bool) *view {
	size := len(t.NodeOf)
	v := &view{group: make([]int, size), inSum: make([]int, size), inTree: make([]int, size)}
	v.sum, v.tree = t.Nodes, t.Nodes
	for _, ranks := range t.Nodes {
		v.parts = append(v.parts, []int{len(ranks)})
	}
	if flat {
		ranks := make([]int, size)
		for i := range ranks {
			ranks[i] = i
		}
		v.sum, v.tree = [][]int{t.Order()}, [][]int{ranks}
		v.parts = [][]int{ends(t.Nodes)}
	}
	for g := range v.sum {
		v.slices = max(v.slices, len(v.sum[g]))
		for i, r := range v.sum[g] {
			v.group[r], v.inSum[r] = g, i
		}
		for i, r := range v.tree[g] {
			v.inTree[r] = i
		}
	}
	return v
}

// ends returns where each of some lists ends when they follow each other.
func ends(lists [][]int) []int {
	var at []int
	n := 0
	for _, l := range lists {
		n += len(l)
		at = append(at, n)
	}
	return at
}

// above is the group that takes the sum of group g and those below it: the last of
// the range of a power of two that this range is half of, as far as there are groups.
func (v *view) above(g int) int {
	return min(g+1<<bits.TrailingZeros(^uint(g)), len(v.sum)-1)
}

// owner is the rank of group g that adds up slice s.
func (v *view) owner(g, s int) int {
	m := v.sum[g]
	return m[s%len(m)]
}

// entry is the rank of group g at which a broadcast from root arrives.
func (v *view) entry(g, root int) int {
	if v.group[root] == g {
		return root
	}
	m := v.tree[g]
	return m[v.inTree[root]%len(m)]
}

// links finds a rank's place in the broadcast tree of root: its parent (-1 for
// root itself), and its children, other groups first, appended to kids. Both
// levels are binomial trees: of the groups, and of the ranks of a group.
func (v *view) links(me, root int, kids []int) (parent int, children []int) {
	g := v.group[me]
	entry, members := v.entry(g, root), v.tree[g]
	parent = -1
	if me == entry && me != root {
		up := (binomialParent(rotate(g, v.group[root], len(v.tree))) + v.group[root]) % len(v.tree)
		parent = v.entry(up, root)
	}
	if me == entry {
		kids = v.groupKids(kids, g, root)
	}
	base := v.inTree[entry]
	rel := rotate(v.inTree[me], base, len(members))
	if me != entry {
		parent = members[(binomialParent(rel)+base)%len(members)]
	}
	for bit := lowBit(rel, len(members)) >> 1; bit > 0; bit >>= 1 {
		if rel+bit < len(members) {
			kids = append(kids, members[(rel+bit+base)%len(members)])
		}
	}
	return parent, kids
}

// groupKids appends the entries of the groups to which group g passes on.
func (v *view) groupKids(kids []int, g, root int) []int {
	n, base := len(v.tree), v.group[root]
	rel := rotate(g, base, n)
	for bit := lowBit(rel, n) >> 1; bit > 0; bit >>= 1 {
		if rel+bit < n {
			kids = append(kids, v.entry((rel+bit+base)%n, root))
		}
	}
	return kids
}

// rotate renumbers i of n so that base becomes 0.
func rotate(i, base, n int) int { return (i - base + n) % n }

// binomialParent clears the lowest set bit: the parent of a node of a binomial
// tree over 0, 1, 2, ... rooted at 0.
func binomialParent(rel int) int { return rel & (rel - 1) }

// lowBit is the lowest set bit of rel; for 0, a power of two that is at least n.
func lowBit(rel, n int) int {
	if rel != 0 {
		return rel & -rel
	}
	bit := 1
	for bit < n {
		bit <<= 1
	}
	return bit
}
