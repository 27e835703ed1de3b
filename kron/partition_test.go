package kron_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/kron"
)

func TestMergeDims(t *testing.T) {
	left, right := kron.MergeLeft, kron.MergeRight
	for _, c := range []struct {
		shape  []int
		tiling kron.Tiling
		want   []int
	}{
		{[]int{3, 4, 5}, kron.Tiling{}, []int{3, 4, 5}},
		{[]int{3, 4, 5}, kron.Tiling{Merge: left, Limit: 20}, []int{12, 5}},
		{[]int{64, 64}, kron.Tiling{Merge: left, Limit: 10000}, []int{4096}},
		{[]int{30, 4, 5}, kron.Tiling{Merge: left, Limit: 20}, []int{30, 20}},
		{[]int{2, 30, 4}, kron.Tiling{Merge: left, Limit: 20}, []int{2, 30, 4}},
		{[]int{1}, kron.Tiling{Merge: left, Limit: 20}, []int{1}},
		{[]int{}, kron.Tiling{Merge: left, Limit: 20}, []int{1}},
		{[]int{6, 4}, kron.Tiling{Merge: right, Target: 1, Limit: 1024}, []int{24}},
		{[]int{6, 4}, kron.Tiling{Merge: right}, []int{6, 4}},
		{[]int{3, 4, 5}, kron.Tiling{Merge: right, Target: 1, Limit: 20}, []int{3, 20}},
		{[]int{3, 4, 5}, kron.Tiling{Merge: right, Target: 2}, []int{3, 20}},
		{[]int{3, 4, 5}, kron.Tiling{Merge: right, Target: 9}, []int{3, 4, 5}},
		{[]int{256, 128, 4, 4}, kron.Tiling{Merge: right, Target: 2}, []int{256, 2048}},
		{[]int{256, 128, 4, 4}, kron.Tiling{Merge: right, Target: 3}, []int{256, 128, 16}},
		{[]int{1, 7, 1}, kron.Tiling{Merge: right}, []int{7}},
		{[]int{1, 1}, kron.Tiling{Merge: right}, []int{1}},
		{[]int{}, kron.Tiling{Merge: right}, []int{}},
	} {
		if got := kron.MergeDims(c.shape, c.tiling); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("MergeDims(%v, %+v) = %v, want %v", c.shape, c.tiling, got, c.want)
		}
	}
}

func TestPartitionCutsTheFirstSideFirst(t *testing.T) {
	tiles, err := kron.Partition([]int{6, 4}, kron.Tiling{Limit: 3, Split: true})
	if err != nil {
		t.Fatal(err)
	}
	want := []kron.Tile{
		{Dims: []int{3, 3}, Offset: 0, Strides: []int{4, 1}},
		{Dims: []int{3, 1}, Offset: 3, Strides: []int{4, 1}},
		{Dims: []int{3, 3}, Offset: 12, Strides: []int{4, 1}},
		{Dims: []int{3, 1}, Offset: 15, Strides: []int{4, 1}},
	}
	if !reflect.DeepEqual(tiles, want) {
		t.Errorf("got %+v\nwant %+v", tiles, want)
	}
}

func TestPartitionRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		shape  []int
		tiling kron.Tiling
	}{
		"a negative side":      {[]int{3, -1}, kron.Tiling{}},
		"order four":           {[]int{2, 2, 2, 2}, kron.Tiling{}},
		"a negative limit":     {[]int{2}, kron.Tiling{Limit: -1}},
		"order four, no merge": {[]int{9, 9, 9, 9}, kron.Tiling{Merge: kron.MergeRight, Limit: 5}},
	} {
		if tiles, err := kron.Partition(c.shape, c.tiling); err == nil {
			t.Errorf("%s: got %+v", name, tiles)
		}
	}
}

// Every element belongs to exactly one tile, no side exceeds the limit.
func TestPartitionCoversEveryElementOnce(t *testing.T) {
	const seed = 11
	rng := rand.New(rand.NewPCG(seed, 0))
	for trial := range 200 {
		shape := make([]int, rng.IntN(5))
		n := 1
		for i := range shape {
			shape[i] = 1 + rng.IntN(7)
			n *= shape[i]
		}
		tiling := kron.Tiling{Merge: kron.Merge(rng.IntN(3)), Target: 1 + rng.IntN(3), Limit: 1 + rng.IntN(12), Split: true}
		tiles, err := kron.Partition(shape, tiling)
		if err != nil {
			continue // order four without a merge
		}
		seen := make([]float64, n)
		for _, tile := range tiles {
			v := kron.TileView(seen, tile)
			visit(v, func(x *float64) { *x++ })
			for _, d := range tile.Dims {
				if d > tiling.Limit {
					t.Fatalf("seed %d trial %d: %v %+v gives side %d", seed, trial, shape, tiling, d)
				}
			}
		}
		for i, c := range seen {
			if c != 1 {
				t.Fatalf("seed %d trial %d: %v %+v covers element %d %v times", seed, trial, shape, tiling, i, c)
			}
		}
	}
}

func visit(v kron.View[float64], f func(*float64)) {
	for i := range v.Dims[0] {
		for j := range v.Dims[1] {
			for k := range v.Dims[2] {
				f(&v.Data[i*v.Strides[0]+j*v.Strides[1]+k*v.Strides[2]])
			}
		}
	}
}

func TestViewsRefuseShortData(t *testing.T) {
	for name, f := range map[string]func(){
		"short":      func() { kron.ViewOf(make([]float32, 5), 2, 3) },
		"order four": func() { kron.ViewOf(make([]float32, 16), 2, 2, 2, 2) },
	} {
		if !panics(f) {
			t.Errorf("%s: accepted", name)
		}
	}
	if n := kron.ViewOf(make([]float32, 0), 0, 3).Len(); n != 0 {
		t.Errorf("empty view has %d elements", n)
	}
	v := kron.MatrixView(gemm.NewMatrix[float32](3, 4).Slice(0, 1, 2, 2))
	if v.Len() != 4 || v.Strides != [3]int{0, 4, 1} {
		t.Errorf("%+v", v)
	}
}

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}
