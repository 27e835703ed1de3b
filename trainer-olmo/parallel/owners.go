package parallel

import (
	"cmp"
	"slices"
)

// Unit is something that ranks share out among them: a parameter with its
// optimizer state.
type Unit struct {
	Name     string
	Elements int
	Bytes    int64 // of optimizer state
	Cost     int64 // of a refresh, in any unit
	Whole    bool  // has one owner; otherwise it may be cut between any two elements
}

// Piece is elements [Lo, Hi) of a unit, which one rank owns.
type Piece struct {
	Unit   int // index in the list of units
	Lo, Hi int
	Owner  int
}

// cutAlign is the multiple of elements at which units are cut: 64 bytes of
// float32.
const cutAlign = 16

// Owners gives every unit one owner: in the order of falling cost, names break
// ties, each to the rank with the least so far, the lowest rank first. So the
// largest load is at most 4/3 of the best possible one (Graham 1969, LPT rule). It
// is a pure function of the arguments; the order of the list has no influence on
// who owns a name, provided that names differ.
func Owners(units []Unit, ranks int) []int {
	owners, load := make([]int, len(units)), make([]int64, ranks)
	assign(units, load, owners, func(u Unit) int64 { return u.Cost }, func(Unit) bool { return true })
	return owners
}

// assign is the LPT rule over the units that take selects. load is added to.
func assign(units []Unit, load []int64, owners []int, weight func(Unit) int64, take func(Unit) bool) {
	var order []int
	for i, u := range units {
		if take(u) {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(weight(units[b]), weight(units[a])), cmp.Compare(units[a].Name, units[b].Name))
	})
	for _, i := range order {
		least := 0
		for r, l := range load {
			if l < load[least] {
				least = r
			}
		}
		owners[i] = least
		load[least] += weight(units[i])
	}
}

// Cut shares out optimizer state by bytes: whole units by the LPT rule, then the
// others as one long row that fills every rank up to the same level. Pieces come
// in the order of units and, inside one, of elements, whose owners ascend. An
// empty unit has one empty piece, so that every unit has an owner.
func Cut(units []Unit, ranks int) []Piece {
	load, owners := make([]int64, ranks), make([]int, len(units))
	whole := func(u Unit) bool { return u.Whole || u.Elements == 0 }
	assign(units, load, owners, func(u Unit) int64 { return u.Bytes }, whole)
	rest := int64(0)
	for _, u := range units {
		if !whole(u) {
			rest += u.Bytes
		}
	}
	room := fill(load, rest)
	var pieces []Piece
	rank := 0
	for i, u := range units {
		if whole(u) {
			pieces = append(pieces, Piece{Unit: i, Hi: u.Elements, Owner: owners[i]})
			continue
		}
		pieces, rank = cutUnit(pieces, i, u, room, rank)
	}
	return pieces
}

// cutUnit gives the elements of one unit to rank and the ones after it, as far as
// they have room, which it uses up. The last rank takes what rounding leaves over.
func cutUnit(pieces []Piece, i int, u Unit, room []int64, rank int) ([]Piece, int) {
	each := float64(u.Bytes) / float64(u.Elements)
	for lo := 0; lo < u.Elements; {
		n := u.Elements - lo
		if fit := int(float64(room[rank]) / max(each, 1e-9)); fit < n && rank < len(room)-1 {
			n = fit / cutAlign * cutAlign
		}
		if n > 0 {
			pieces = append(pieces, Piece{Unit: i, Lo: lo, Hi: lo + n, Owner: rank})
			room[rank] -= int64(float64(n) * each)
			lo += n
		}
		if lo < u.Elements {
			rank++
		}
	}
	return pieces, rank
}

// fill returns how many of rest bytes each rank takes so that the fullest rank
// has as few as possible: all are filled to one level, those above it get none.
func fill(load []int64, rest int64) []int64 {
	sorted := slices.Clone(load)
	slices.Sort(sorted)
	level, sum := int64(0), rest
	for n, l := range sorted {
		sum += l
		level = (sum + int64(n)) / int64(n+1) // rounded up
		if n+1 == len(sorted) || level <= sorted[n+1] {
			break
		}
	}
	room := make([]int64, len(load))
	for r, l := range load {
		room[r] = max(0, level-l)
	}
	return room
}
