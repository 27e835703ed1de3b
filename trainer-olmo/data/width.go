package data

import (
	"encoding/binary"
	"fmt"
)

// Width is the size of one id in a token file, in bytes: 1, 2, 4 or 8.
type Width int

// String is numpy's name of the type: uint8, uint16, uint32 or uint64.
func (w Width) String() string { return fmt.Sprintf("uint%d", 8*int(w)) }

// MaxID is the largest id that fits; ids are never above 2^31−1.
func (w Width) MaxID() int64 {
	if w >= 4 {
		return 1<<31 - 1
	}
	return 1<<(8*w) - 1
}

// WidthFor is the smallest width that holds ids below vocab, as OLMo-core
// chooses it when none is given.
func WidthFor(vocab int) Width {
	switch {
	case vocab <= 1<<8:
		return 1
	case vocab <= 1<<16:
		return 2
	}
	return 4
}

// widthOf reads a name of a width.
func widthOf(dtype string) (Width, error) {
	for _, w := range []Width{1, 2, 4, 8} {
		if dtype == w.String() {
			return w, nil
		}
	}
	return 0, fmt.Errorf("data: dtype %q, allowed uint8, uint16, uint32, uint64", dtype)
}

// append writes one id, which must fit.
func (w Width) append(dst []byte, id uint32) []byte {
	switch w {
	case 1:
		return append(dst, byte(id))
	case 2:
		return binary.LittleEndian.AppendUint16(dst, uint16(id))
	case 4:
		return binary.LittleEndian.AppendUint32(dst, id)
	}
	return binary.LittleEndian.AppendUint64(dst, uint64(id))
}

// value reads the id at index i of raw.
func (w Width) value(raw []byte, i int) uint64 {
	switch w {
	case 1:
		return uint64(raw[i])
	case 2:
		return uint64(binary.LittleEndian.Uint16(raw[2*i:]))
	case 4:
		return uint64(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return binary.LittleEndian.Uint64(raw[8*i:])
}

// decode fills dst from raw, of len(dst) ids, and returns the index of the first
// id that is not below limit (1 to 2^31), or −1. The loops gather the sign of
// limit−1−id, so that they have no branch on the data.
func (w Width) decode(dst []int32, raw []byte, limit int64) int {
	bad := uint64(0)
	bound := uint64(limit)
	switch w {
	case 1:
		for i, v := range raw[:len(dst)] {
			dst[i] = int32(v)
			bad |= bound - 1 - uint64(v)
		}
	case 2:
		raw = raw[:2*len(dst)]
		for i := range dst {
			v := binary.LittleEndian.Uint16(raw[2*i:])
			dst[i] = int32(v)
			bad |= bound - 1 - uint64(v)
		}
	case 4:
		raw = raw[:4*len(dst)]
		for i := range dst {
			v := binary.LittleEndian.Uint32(raw[4*i:])
			dst[i] = int32(v)
			bad |= bound - 1 - uint64(v)
		}
	default:
		for i := range dst {
			v := binary.LittleEndian.Uint64(raw[8*i:])
			dst[i] = int32(v)                // wrong for a huge id, which is refused
			bad |= bound - 1 - min(v, bound) // the difference of a huge id could wrap back
		}
	}
	if bad>>63 == 0 {
		return -1
	}
	// Some id is out of range: look again, slowly, for the first.
	for i := range dst {
		if w.value(raw, i) >= bound {
			return i
		}
	}
	return -1
}
