package hiersync

import (
	"unsafe"
)

// Float are the types whose sums and averages are supported.
type Float interface{ float32 | float64 }

// Element are the types that can be moved between ranks.
type Element interface {
	float32 | float64 | int64 | uint64 | byte
}

// Reduction says how the contributions of the ranks become one value.
type Reduction uint8

const (
	// Sum adds. Floating-point sums have the order that the package comment states.
	Sum Reduction = iota
	// Average is Sum divided by the number of ranks, one rounding more. Floats only.
	Average
	// Max and Min compare. int64 only.
	Max
	Min
	// And and Or combine bits. int64 only.
	And
	Or
)

// String names the reduction.
func (r Reduction) String() string {
	names := [...]string{"sum", "average", "max", "min", "and", "or"}
	if int(r) < len(names) {
		return names[r]
	}
	return "unknown reduction"
}

// elem is the type of an operation's elements, on the wire too.
type elem uint8

const (
	elemByte elem = iota
	elemFloat32
	elemFloat64
	elemInt64
	elemUint64
)

// size of an element in bytes.
func (e elem) size() int {
	switch e {
	case elemByte:
		return 1
	case elemFloat32:
		return 4
	}
	return 8
}

func elemOf[T Element]() elem {
	var zero T
	switch any(zero).(type) {
	case float32:
		return elemFloat32
	case float64:
		return elemFloat64
	case int64:
		return elemInt64
	case uint64:
		return elemUint64
	}
	return elemByte
}

// bytesOf is the memory of a slice. Ranks have one byte order, which is checked
// when they meet.
func bytesOf[T Element](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(s[0])))
}

// viewOf is the inverse of bytesOf. The memory must be aligned for T: callers'
// slices are, and payloads start at a multiple of 8.
func viewOf[T Element](b []byte) []T {
	if len(b) == 0 {
		return nil
	}
	var zero T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(zero)))
}

// combine sets dst = dst r src, element by element. Each of the operations is
// commutative to the bit, so it serves for dst being either side of the fold.
func combine(e elem, r Reduction, dst, src []byte) {
	switch e {
	case elemFloat32:
		add(viewOf[float32](dst), viewOf[float32](src))
	case elemFloat64:
		add(viewOf[float64](dst), viewOf[float64](src))
	case elemInt64:
		combineInts(r, viewOf[int64](dst), viewOf[int64](src))
	}
}

func add[T Float](dst, src []T) {
	src = src[:len(dst)]
	for i := range dst {
		dst[i] += src[i]
	}
}

func combineInts(r Reduction, dst, src []int64) {
	src = src[:len(dst)]
	for i, x := range src {
		switch r {
		case Sum:
			dst[i] += x
		case Max:
			dst[i] = max(dst[i], x)
		case Min:
			dst[i] = min(dst[i], x)
		case And:
			dst[i] &= x
		case Or:
			dst[i] |= x
		}
	}
}

// divide finishes an average.
func divide(e elem, b []byte, ranks int) {
	if e == elemFloat32 {
		divideBy(viewOf[float32](b), float32(ranks))
	} else {
		divideBy(viewOf[float64](b), float64(ranks))
	}
}

func divideBy[T Float](x []T, n T) {
	for i := range x {
		x[i] /= n
	}
}

// allowed says whether a reduction is defined for an element type.
func allowed(e elem, r Reduction) bool {
	switch e {
	case elemFloat32, elemFloat64:
		return r == Sum || r == Average
	case elemInt64:
		return r == Sum || r >= Max && r <= Or
	}
	return false
}

// byteOrder is 1 on a little-endian machine and other values elsewhere.
func byteOrder() byte { return bytesOf([]uint64{1})[0] }
