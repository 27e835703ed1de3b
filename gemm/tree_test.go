package gemm

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// tree compares MulTree with a call for each group and additions.
func tree[T Float](t *testing.T, e *Engine, r *rand.Rand, m, n, part int, groups []int) {
	t.Helper()
	c := randomCase[T](r, m, n, part*len(groups))
	got, want := c.c.clone(), c.c.clone()
	MulTree(e, c.ta, c.tb, part, groups, c.alpha, view(c.a), view(c.b), c.beta, view(got))
	got.check(t, "c")
	if c.alpha == 0 {
		return
	}
	sum := sumOf(e, c, part, groups, 0, 1<<6)
	for i := range m {
		for j := range n {
			x := &want.x[i*want.ld+j]
			if *x *= c.beta; c.beta == 0 {
				*x = 0
			}
			*x += sum.At(i, j)
		}
	}
	if !sameBits(got.all, want.all) {
		t.Fatalf("%v: parts of %d in groups %v differ from calls of their own", c, part, groups)
	}
}

// sumOf is the sum of the groups from lo to before hi, a zero matrix without any.
func sumOf[T Float](e *Engine, c *testCase[T], part int, groups []int, lo, hi int) Matrix[T] {
	sum := NewMatrix[T](c.m, c.n)
	if hi-lo > 1 {
		left, right := sumOf(e, c, part, groups, lo, (lo+hi)/2), sumOf(e, c, part, groups, (lo+hi)/2, hi)
		for i, x := range left.Data {
			sum.Data[i] = x + right.Data[i]
		}
		return sum
	}
	first, _ := slices.BinarySearch(groups, lo)
	last, _ := slices.BinarySearch(groups, hi)
	if first < last {
		x, y := c.inner(first*part, (last-first)*part)
		MulParts(e, c.ta, c.tb, part, c.alpha, x, y, 0, sum)
	}
	return sum
}

// randomGroups puts count parts in groups below 64.
func randomGroups(r *rand.Rand, count int) []int {
	groups := make([]int, count)
	most := []int{1, 2, 4, 64}[r.IntN(4)]
	for i := range groups {
		groups[i] = r.IntN(most)
		if r.IntN(2) == 0 && i > 0 {
			groups[i] = groups[i-1]
		}
	}
	slices.Sort(groups)
	return groups
}

func TestTreeEqualsCallsAndAdditions(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	eachEngine(t, func(t *testing.T, e *Engine) {
		r := rand.New(rand.NewPCG(seed, 12))
		tree[float32](t, e, r, 700, 200, 8, []int{0, 1, 2, 3}) // columns in one block, rows in several
		for i := range 12 {
			m, n, count := 1+r.IntN(60), 1+r.IntN(90), 1+r.IntN(9)
			if i%3 == 0 { // rows in several blocks, columns worth packing
				m, n, count = 200+r.IntN(300), 192+r.IntN(600), 1+r.IntN(4)
			}
			if i == 3 { // several slices a part
				tree[float32](t, e, r, 1+m/4, n, 530, randomGroups(r, 3))
			}
			tree[float32](t, e, r, m, n, 1+r.IntN(70), randomGroups(r, count))
			tree[float64](t, e, r, m, n/2+1, 1+r.IntN(70), randomGroups(r, count))
		}
	})
}

// Sums of aligned ranges that are added later have the bits of one call.
func TestTreeContinues(t *testing.T) {
	const m, n, part = 40, 50, 9
	e := engine(t, 2, Auto)
	a, b := randomSlice[float32](8*part*m), randomSlice[float32](8*part*n)
	groups := []int{0, 1, 2, 3, 4, 5, 6, 7}
	whole, halves := NewMatrix[float32](m, n), NewMatrix[float32](m, n)
	x, y := MatrixOf(8*part, m, a), MatrixOf(8*part, n, b)
	MulTree(e, true, false, part, groups, 1, x, y, 0, whole)
	for half := range 2 {
		lo := 4 * half * part
		MulTree(e, true, false, part, groups[4*half:4*half+4], 1, x.Slice(lo, 0, 4*part, m), y.Slice(lo, 0, 4*part, n), float32(half), halves)
	}
	if !sameBits(whole.Data, halves.Data) {
		t.Error("two halves differ from one call")
	}
}

func TestTreeSteps(t *testing.T) {
	steps, levels := treeSteps(nil, []int{0, 1, 2, 3}, 1, false)
	want := []step{{0, false, 0}, {0, true, 0}, {1, false, 0}, {1, true, 1}}
	if !slices.Equal(steps, want) || levels != 2 {
		t.Errorf("%v on %d levels, want %v", steps, levels, want)
	}
	if steps, levels = treeSteps(nil, []int{5, 5, 5}, 1, false); levels != 1 || steps[2] != (step{0, true, 0}) {
		t.Errorf("one group: %v on %d levels", steps, levels)
	}
}
