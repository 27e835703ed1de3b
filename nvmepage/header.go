package nvmepage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// headerSize is the encoded size. The header stands at the start of a page of its
// own, whose rest is zero.
const headerSize = 64

// headerMagic is the first eight bytes of every header; its last byte is the
// version of the format.
const headerMagic = "ASTPAGE\x02"

// header describes one version of one object.
type header struct {
	Store   uint64 // identity of the store, so that stale pages of another are not taken
	ID      uint64
	Version uint64 // grows over all saves of a store
	Length  int64  // logical bytes
	Align   uint32 // of the extent: where the payload starts and what it is padded to
	CRC     uint32 // CRC-32C of the payload
	Off     int64  // where in the data file the page stands, so that a copy elsewhere is not taken
	Paths   uint32 // over how many the store was spread, so that a missing one is noticed
}

// encode writes h to the first headerSize bytes of page.
func (h header) encode(page []byte) {
	le := binary.LittleEndian
	copy(page, headerMagic)
	le.PutUint64(page[8:], h.Store)
	le.PutUint64(page[16:], h.ID)
	le.PutUint64(page[24:], h.Version)
	le.PutUint64(page[32:], uint64(h.Length))
	le.PutUint32(page[40:], h.Align)
	le.PutUint32(page[44:], h.CRC)
	le.PutUint64(page[48:], uint64(h.Off))
	le.PutUint32(page[56:], h.Paths)
	le.PutUint32(page[60:], crc32.Checksum(page[:60], castagnoli))
}

// errNoHeader is returned for bytes that do not start with the magic.
var errNoHeader = errors.New("no page header here")

// decodeHeader reads a header and checks everything that can be checked without
// the payload.
func decodeHeader(page []byte) (header, error) {
	le := binary.LittleEndian
	if len(page) < headerSize || string(page[:len(headerMagic)-1]) != headerMagic[:len(headerMagic)-1] {
		return header{}, errNoHeader
	}
	if got, want := page[7], headerMagic[7]; got != want {
		return header{}, fmt.Errorf("page format %d: this version reads %d", got, want)
	}
	if got, want := crc32.Checksum(page[:60], castagnoli), le.Uint32(page[60:]); got != want {
		return header{}, fmt.Errorf("header checksum %#08x, recorded %#08x", got, want)
	}
	h := header{
		Store: le.Uint64(page[8:]), ID: le.Uint64(page[16:]), Version: le.Uint64(page[24:]),
		Length: int64(le.Uint64(page[32:])), Align: le.Uint32(page[40:]), CRC: le.Uint32(page[44:]),
		Off: int64(le.Uint64(page[48:])), Paths: le.Uint32(page[56:]),
	}
	if h.Length <= 0 || h.Length > maxLength || h.Align < headerSize || h.Align > 1<<20 || h.Align&(h.Align-1) != 0 {
		return header{}, fmt.Errorf("length %d, alignment %d: want 1 to %d bytes and a power of two", h.Length, h.Align, int64(maxLength))
	}
	if h.Off < 0 || h.Off%int64(h.Align) != 0 || h.Paths == 0 {
		return header{}, fmt.Errorf("offset %d, %d paths: want a multiple of %d and one path or more", h.Off, h.Paths, h.Align)
	}
	return h, nil
}

// maxLength bounds an object so that extents cannot overflow.
const maxLength = 1 << 46

// extent returns the bytes that an object occupies on disk.
func (h header) extent() int64 { return extentSize(h.Length, int64(h.Align)) }

func extentSize(length, align int64) int64 { return align + roundUp(length, align) }

func roundUp(n, align int64) int64 { return (n + align - 1) / align * align }
