package kron

import (
	"fmt"

	"github.com/asteria-runtime/asteria/gemm"
)

// Merge says which neighbouring dimensions of a parameter become one side.
// Storage is row-major, so merging moves no data.
type Merge uint8

const (
	// MergeNone keeps the shape.
	MergeNone Merge = iota
	// MergeLeft multiplies from the first dimension on while the product stays
	// within the limit (merge_dims of nikhilvyas/SOAP).
	MergeLeft
	// MergeRight drops sides of length one, then multiplies from the last
	// dimension back while the product stays within the limit and more than
	// Target dimensions remain (merge_small_dims of facebookresearch/optimizers).
	MergeRight
)

// Tiling says how a parameter is cut into blocks; the zero value makes one
// block of the whole shape.
type Tiling struct {
	Merge Merge
	// Target is the order at which MergeRight stops; 0 means 2 (the reference
	// default of 1 turns a 6×4 matrix into a vector of 24).
	Target int
	// Limit bounds a merged product and, with Split, a tile's side; 0 means 2048.
	Limit int
	// Split cuts every side longer than Limit into chunks of Limit, the last
	// one shorter. Without it such a side has no factor (see Options.MaxDim).
	Split bool
}

// Tile is one block of a parameter: a box in its row-major storage.
type Tile struct {
	Dims    []int // order 0 to 3
	Offset  int   // of the first element
	Strides []int // in elements, one per entry of Dims
}

// Len returns the number of elements.
func (t Tile) Len() int { return product(t.Dims) }

// Partition returns the tiles of a parameter in the order of the reference:
// chunks of the first side outermost. It fails when more than three dimensions
// remain after merging.
func Partition(shape []int, tiling Tiling) ([]Tile, error) {
	for _, d := range shape {
		if d < 0 {
			return nil, fmt.Errorf("kron: shape %v has a negative side", shape)
		}
	}
	limit := or(tiling.Limit, 2048)
	if limit < 1 || tiling.Target < 0 {
		return nil, fmt.Errorf("kron: tiling limit %d and target %d, want 0 (default) or more", tiling.Limit, tiling.Target)
	}
	dims := MergeDims(shape, tiling)
	if len(dims) > MaxOrder {
		return nil, fmt.Errorf("kron: shape %v has order %d after merging, want at most %d", shape, len(dims), MaxOrder)
	}
	whole := Tile{Dims: dims, Strides: rowMajor(dims)}
	if !tiling.Split {
		return []Tile{whole}, nil
	}
	return split(whole, limit), nil
}

// MergeDims returns shape after merging, a fresh slice.
func MergeDims(shape []int, tiling Tiling) []int {
	limit := or(tiling.Limit, 2048)
	switch tiling.Merge {
	case MergeLeft:
		return mergeLeft(shape, limit)
	case MergeRight:
		return mergeRight(shape, limit, or(tiling.Target, 2))
	}
	return append([]int(nil), shape...)
}

// mergeLeft multiplies from the front; a side above the limit stands alone.
func mergeLeft(shape []int, limit int) []int {
	var out []int
	current := 1
	for _, d := range shape {
		switch {
		case current*d <= limit:
			current *= d
		case current > 1:
			out = append(out, current)
			current = d
		default:
			out = append(out, d)
			current = 1
		}
	}
	// A lone trailing one is dropped: it stands for no dimension at all.
	if current > 1 || len(out) == 0 {
		out = append(out, current)
	}
	return out
}

// mergeRight multiplies from the back while more than target dimensions remain.
func mergeRight(shape []int, limit, target int) []int {
	var dims []int
	for _, d := range shape {
		if d != 1 {
			dims = append(dims, d)
		}
	}
	remaining := len(dims)
	var reversed []int
	for i := len(dims) - 1; i >= 0; i-- {
		last := len(reversed) - 1
		if last >= 0 && remaining > target && reversed[last]*dims[i] <= limit {
			reversed[last] *= dims[i]
			remaining--
			continue
		}
		reversed = append(reversed, dims[i])
	}
	if len(reversed) == 0 && len(shape) > 0 {
		return []int{1} // one dimension stays, so that only a scalar has none
	}
	out := make([]int, 0, len(reversed))
	for i := len(reversed) - 1; i >= 0; i-- {
		out = append(out, reversed[i])
	}
	return out
}

// split cuts t into chunks of at most limit a side.
func split(t Tile, limit int) []Tile {
	tiles := []Tile{t}
	for axis := range t.Dims {
		var next []Tile
		for _, u := range tiles {
			for lo := 0; lo == 0 || lo < u.Dims[axis]; lo += limit {
				dims := append([]int(nil), u.Dims...)
				dims[axis] = min(limit, u.Dims[axis]-lo)
				next = append(next, Tile{Dims: dims, Offset: u.Offset + lo*u.Strides[axis], Strides: u.Strides})
			}
		}
		tiles = next
	}
	return tiles
}

// rowMajor returns the strides of packed storage.
func rowMajor(dims []int) []int {
	strides := make([]int, len(dims))
	step := 1
	for i := len(dims) - 1; i >= 0; i-- {
		strides[i] = step
		step *= dims[i]
	}
	return strides
}

func product(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

// View is a strided box of order up to three over the caller's slice: element
// (i, j, k) is Data[i*Strides[0]+j*Strides[1]+k*Strides[2]]. Lower orders are
// right-aligned: a matrix has Dims[0] = 1.
type View[T gemm.Float] struct {
	Data          []T
	Dims, Strides [MaxOrder]int
}

// ViewOf views packed row-major data.
func ViewOf[T gemm.Float](data []T, dims ...int) View[T] {
	return strided(data, dims, rowMajor(dims))
}

// MatrixView views m, sharing storage.
func MatrixView[T gemm.Float](m gemm.Matrix[T]) View[T] {
	return View[T]{Data: m.Data, Dims: [MaxOrder]int{1, m.Rows, m.Cols}, Strides: [MaxOrder]int{0, m.Stride, 1}}
}

// TileView views the part of a parameter's storage that t covers.
func TileView[T gemm.Float](data []T, t Tile) View[T] {
	if t.Len() == 0 {
		return strided(data[:0], t.Dims, t.Strides)
	}
	return strided(data[t.Offset:], t.Dims, t.Strides)
}

func strided[T gemm.Float](data []T, dims, strides []int) View[T] {
	if len(dims) > MaxOrder {
		panic("kron: view of order above three")
	}
	v := View[T]{Data: data, Dims: [MaxOrder]int{1, 1, 1}, Strides: [MaxOrder]int{0, 0, 1}}
	skip := MaxOrder - len(dims)
	for i, d := range dims {
		v.Dims[skip+i], v.Strides[skip+i] = d, strides[i]
	}
	if n := v.Len(); n > 0 && v.last() >= len(data) {
		panic("kron: data shorter than the view")
	}
	return v
}

// Len returns the number of elements.
func (v View[T]) Len() int { return v.Dims[0] * v.Dims[1] * v.Dims[2] }

// last returns the index of the last element in Data.
func (v View[T]) last() int {
	n := 0
	for i, d := range v.Dims {
		n += (d - 1) * v.Strides[i]
	}
	return n
}

// packed reports whether the elements lie side by side in row-major order.
func (v View[T]) packed() bool {
	step := 1
	for i := MaxOrder - 1; i >= 0; i-- {
		if v.Dims[i] > 1 && v.Strides[i] != step {
			return false
		}
		step *= v.Dims[i]
	}
	return true
}
