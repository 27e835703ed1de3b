package hiersync

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// kind is what an operation does, on the wire too.
type kind uint8

const (
	kindReduce kind = iota + 1
	kindBroadcast
	kindAllgather
)

func (k kind) String() string {
	switch k {
	case kindReduce:
		return "allreduce"
	case kindBroadcast:
		return "broadcast"
	case kindAllgather:
		return "allgather"
	}
	return ""
}

// frame is the header of a message: enough to notice that two ranks do not do
// the same thing.
type frame struct {
	kind    kind
	elem    elem
	red     Reduction
	seq     uint64 // number of the operation
	total   uint64 // bytes of the operation's buffer
	segment uint32 // number of the segment within its slice
	length  uint32 // bytes of payload
}

// frameSize is the encoded size; a multiple of 8, so that payloads are aligned.
const frameSize = 32

// frameMagic starts every message: "ASH" and the version of the format.
const frameMagic = 0x01485341

// encode writes the frame to the first frameSize bytes of b.
func (f frame) encode(b []byte) {
	le := binary.LittleEndian
	le.PutUint32(b, frameMagic)
	b[4], b[5], b[6], b[7] = byte(f.kind), byte(f.elem), byte(f.red), 0
	le.PutUint64(b[8:], f.seq)
	le.PutUint64(b[16:], f.total)
	le.PutUint32(b[24:], f.segment)
	le.PutUint32(b[28:], f.length)
}

var errFrame = errors.New("hiersync: not a message of this version")

// decodeFrame reads a header and checks that b holds the payload it announces.
func decodeFrame(b []byte) (frame, []byte, error) {
	le := binary.LittleEndian
	if len(b) < frameSize || le.Uint32(b) != frameMagic || b[7] != 0 {
		return frame{}, nil, errFrame
	}
	f := frame{
		kind: kind(b[4]), elem: elem(b[5]), red: Reduction(b[6]), seq: le.Uint64(b[8:]),
		total: le.Uint64(b[16:]), segment: le.Uint32(b[24:]), length: le.Uint32(b[28:]),
	}
	if uint64(f.length) > uint64(len(b)-frameSize) {
		return frame{}, nil, fmt.Errorf("%w: %d bytes of payload announced, %d there", errFrame, f.length, len(b)-frameSize)
	}
	return f, b[frameSize:][:f.length], nil
}
