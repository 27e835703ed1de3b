package safetensors

import (
	"encoding/binary"
	"math"

	"github.com/asteria-runtime/asteria/gemm"
)

// DType is an element type by its name in the header.
type DType string

// The types that hold weights.
const (
	F64  DType = "F64"
	F32  DType = "F32"
	F16  DType = "F16"
	BF16 DType = "BF16"
)

// sizes gives the bytes of an element of every type of the format.
var sizes = map[DType]uint64{
	F64: 8, F32: 4, F16: 2, BF16: 2, "I64": 8, "U64": 8, "I32": 4, "U32": 4, "I16": 2, "U16": 2,
	"I8": 1, "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "C64": 8,
}

// Size is the number of bytes of an element, 0 for an unknown type.
func (d DType) Size() int64 { return int64(sizes[d]) }

// floats reports whether the type holds weights.
func (d DType) floats() bool { return d == F64 || d == F32 || d == F16 || d == BF16 }

// decode converts little-endian elements.
func decode[T gemm.Float](d DType, dst []T, src []byte) {
	switch d {
	case F64:
		for i := range dst {
			dst[i] = T(math.Float64frombits(binary.LittleEndian.Uint64(src[8*i:])))
		}
	case F32:
		for i := range dst {
			dst[i] = T(math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:])))
		}
	case BF16:
		for i := range dst {
			dst[i] = T(math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16))
		}
	case F16:
		for i := range dst {
			dst[i] = T(fromHalf(binary.LittleEndian.Uint16(src[2*i:])))
		}
	}
}

// encode is the inverse of decode; narrower types round to nearest even.
func encode[T gemm.Float](d DType, dst []byte, src []T) {
	switch d {
	case F64:
		for i, v := range src {
			binary.LittleEndian.PutUint64(dst[8*i:], math.Float64bits(float64(v)))
		}
	case F32:
		for i, v := range src {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(float32(v)))
		}
	case BF16:
		for i, v := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], toBF16(float32(v)))
		}
	}
}

// toBF16 keeps the upper half of a float32, rounded to nearest even. A NaN stays
// one.
func toBF16(v float32) uint16 {
	bits := math.Float32bits(v)
	if v != v {
		return uint16(bits>>16) | 1<<6
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

// fromHalf widens an IEEE binary16, which is exact.
func fromHalf(h uint16) float32 {
	sign := uint32(h>>15) << 31
	exp, frac := uint32(h>>10)&31, uint32(h)&1023
	switch exp {
	case 0: // zero and subnormals: frac * 2^-24
		v := float32(frac) * 0x1p-24
		return math.Float32frombits(math.Float32bits(v) | sign)
	case 31: // infinity and NaN
		return math.Float32frombits(sign | 0xff<<23 | frac<<13)
	}
	return math.Float32frombits(sign | (exp+127-15)<<23 | frac<<13)
}
