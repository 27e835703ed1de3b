package checkpoint

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"math"
	"unicode/utf8"

	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

const (
	magic     = "ASTSTATE"
	tailMagic = "ETATSTSA"
	version   = 1
	headBytes = len(magic) + 4
	tailBytes = 8 + 4 + 4 + 8 + len(tailMagic)
	// entryBytes is an entry of the index without its name.
	entryBytes = 2 + 1 + 8 + 4
	// maxIndexBytes bounds what a reader allocates for a hostile file.
	maxIndexBytes = 100_000_000
	maxNameBytes  = 1 << 12
	// copyBytes is the size of the buffer that data is converted through.
	copyBytes = 1 << 18
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// dtype is the type of a section's elements, as stored.
type dtype uint8

const (
	float32Type dtype = 1
	float64Type dtype = 2
	int64Type   dtype = 3
)

// width is the size of an element in bytes, 0 for an unknown type.
func (d dtype) width() int {
	switch d {
	case float32Type:
		return 4
	case float64Type, int64Type:
		return 8
	}
	return 0
}

// String names the type as safetensors does.
func (d dtype) String() string {
	switch d {
	case float32Type:
		return "F32"
	case float64Type:
		return "F64"
	case int64Type:
		return "I64"
	}
	return fmt.Sprintf("type %d", uint8(d))
}

// entry describes one stored section.
type entry struct {
	name   string
	dtype  dtype
	count  int64
	crc    uint32
	offset int64 // of the data in the file; follows from the entries before
}

// sectionType is the type and length of a section in memory.
func sectionType(s param.Section) (dtype, int64) {
	switch {
	case s.Held != nil && s.Held.Double:
		return float64Type, int64(s.Held.Len)
	case s.Held != nil:
		return float32Type, int64(s.Held.Len)
	case s.F32 != nil:
		return float32Type, int64(len(s.F32))
	case s.F64 != nil:
		return float64Type, int64(len(s.F64))
	}
	return int64Type, int64(len(s.I64))
}

// encode passes the section's elements as little-endian bytes to emit, a
// bufferful at a time, and holds the section meanwhile if need be.
func encode(s param.Section, buf []byte, emit func([]byte) error) error {
	return s.With(false, func(s param.Section) error { return encodeInPlace(s, buf, emit) })
}

func encodeInPlace(s param.Section, buf []byte, emit func([]byte) error) error {
	switch {
	case s.F32 != nil:
		return encodeSlice(s.F32, 4, buf, emit, func(b []byte, v float32) {
			binary.LittleEndian.PutUint32(b, math.Float32bits(v))
		})
	case s.F64 != nil:
		return encodeSlice(s.F64, 8, buf, emit, func(b []byte, v float64) {
			binary.LittleEndian.PutUint64(b, math.Float64bits(v))
		})
	}
	return encodeSlice(s.I64, 8, buf, emit, func(b []byte, v int64) {
		binary.LittleEndian.PutUint64(b, uint64(v))
	})
}

func encodeSlice[T any](x []T, width int, buf []byte, emit func([]byte) error, put func([]byte, T)) error {
	for per := len(buf) / width; len(x) > 0; {
		n := min(per, len(x))
		for i, v := range x[:n] {
			put(buf[i*width:], v)
		}
		if err := emit(buf[:n*width]); err != nil {
			return err
		}
		x = x[n:]
	}
	return nil
}

// decodeAt fills elements [at, at+len(b)/width) of the section from bytes.
func decodeAt(s param.Section, at int, b []byte) {
	switch {
	case s.F32 != nil:
		for i := range len(b) / 4 {
			s.F32[at+i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
	case s.F64 != nil:
		for i := range len(b) / 8 {
			s.F64[at+i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
		}
	default:
		for i := range len(b) / 8 {
			s.I64[at+i] = int64(binary.LittleEndian.Uint64(b[8*i:]))
		}
	}
}

// hashHead puts a section's name, type and length into a digest; its bytes
// follow.
func hashHead(h hash.Hash, name string, d dtype, count int64) {
	fmt.Fprintf(h, "%d:%s %s %d\n", len(name), name, d, count)
}

// writeContainer writes the sections and adds them to the digest h.
func writeContainer(w io.Writer, sections []param.Section, h hash.Hash) error {
	if _, err := w.Write(binary.LittleEndian.AppendUint32([]byte(magic), version)); err != nil {
		return err
	}
	size := int64(headBytes)
	buf, index := make([]byte, copyBytes), []byte(nil)
	for _, s := range sections {
		d, count := sectionType(s)
		if len(s.Name) == 0 || len(s.Name) > maxNameBytes {
			return fmt.Errorf("section name of %d bytes, allowed 1 to %d", len(s.Name), maxNameBytes)
		}
		hashHead(h, s.Name, d, count)
		crc := uint32(0)
		err := encode(s, buf, func(b []byte) error {
			crc = crc32.Update(crc, castagnoli, b)
			h.Write(b)
			_, err := w.Write(b)
			return err
		})
		if err != nil {
			return err
		}
		size += count * int64(d.width())
		index = appendEntry(index, s.Name, d, count, crc)
	}
	_, err := w.Write(appendTail(index, len(sections), size))
	return err
}

func appendEntry(b []byte, name string, d dtype, count int64, crc uint32) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(len(name)))
	b = append(append(b, name...), byte(d))
	b = binary.LittleEndian.AppendUint64(b, uint64(count))
	return binary.LittleEndian.AppendUint32(b, crc)
}

// appendTail closes an index that begins at offset size.
func appendTail(index []byte, n int, size int64) []byte {
	length := len(index)
	b := binary.LittleEndian.AppendUint64(index, uint64(length))
	b = binary.LittleEndian.AppendUint32(b, uint32(n))
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(index[:length], castagnoli))
	b = binary.LittleEndian.AppendUint64(b, uint64(size)+uint64(length)+uint64(tailBytes))
	return append(b, tailMagic...)
}

// container is an open .state file whose index has been checked.
type container struct {
	file    string // for errors
	r       io.ReaderAt
	entries []entry
}

var errTruncated = errors.New("the file is cut off or is not a state file")

// openContainer reads and checks the index of a file of the given size.
func openContainer(r io.ReaderAt, size int64, file string) (*container, error) {
	c := &container{file: file, r: r}
	fail := func(err error) (*container, error) {
		return nil, fmt.Errorf("checkpoint: %s: %w", file, err)
	}
	if size < int64(headBytes+tailBytes) {
		return fail(fmt.Errorf("%w (%d bytes)", errTruncated, size))
	}
	if err := checkHead(r); err != nil {
		return fail(err)
	}
	index, n, err := readIndex(r, size)
	if err != nil {
		return fail(err)
	}
	end := size - int64(tailBytes) - int64(len(index))
	if c.entries, err = parseIndex(index, n, end); err != nil {
		return fail(err)
	}
	return c, nil
}

func checkHead(r io.ReaderAt) error {
	var head [headBytes]byte
	if _, err := r.ReadAt(head[:], 0); err != nil {
		return err
	}
	if !bytes.HasPrefix(head[:], []byte(magic)) {
		return errors.New("not a state file: its first bytes are not " + magic)
	}
	if v := binary.LittleEndian.Uint32(head[len(magic):]); v != version {
		return fmt.Errorf("format version %d, this program reads %d", v, version)
	}
	return nil
}

// readIndex returns the bytes of the index and the number of its entries.
func readIndex(r io.ReaderAt, size int64) ([]byte, uint32, error) {
	var tail [tailBytes]byte
	if _, err := r.ReadAt(tail[:], size-int64(tailBytes)); err != nil {
		return nil, 0, err
	}
	length, n := binary.LittleEndian.Uint64(tail[0:]), binary.LittleEndian.Uint32(tail[8:])
	crc, whole := binary.LittleEndian.Uint32(tail[12:]), binary.LittleEndian.Uint64(tail[16:])
	if string(tail[24:]) != tailMagic {
		return nil, 0, errTruncated
	}
	if whole != uint64(size) {
		return nil, 0, fmt.Errorf("the file has %d bytes and should have %d", size, whole)
	}
	room := uint64(size) - uint64(headBytes+tailBytes)
	if length > room || length > maxIndexBytes || uint64(n)*entryBytes > length {
		return nil, 0, fmt.Errorf("an index of %d bytes for %d sections in a file of %d bytes", length, n, size)
	}
	index := make([]byte, length)
	if _, err := r.ReadAt(index, size-int64(tailBytes)-int64(length)); err != nil {
		return nil, 0, err
	}
	if crc32.Checksum(index, castagnoli) != crc {
		return nil, 0, errors.New("the checksum of the index differs: the file is damaged")
	}
	return index, n, nil
}

// parseIndex returns the entries; their data must end exactly at end.
func parseIndex(index []byte, n uint32, end int64) ([]entry, error) {
	entries := make([]entry, 0, n)
	seen := make(map[string]bool, n)
	offset := int64(headBytes)
	for range n {
		e, rest, err := parseEntry(index)
		if err != nil {
			return nil, err
		}
		if seen[e.name] {
			return nil, fmt.Errorf("section %q appears twice", e.name)
		}
		seen[e.name], index = true, rest
		e.offset = offset
		// The comparison is by division: count is not trusted to fit.
		if e.count < 0 || e.count > (end-offset)/int64(e.dtype.width()) {
			return nil, fmt.Errorf("section %q: %d elements do not fit in the file", e.name, e.count)
		}
		offset += e.count * int64(e.dtype.width())
		entries = append(entries, e)
	}
	if len(index) != 0 || offset != end {
		return nil, fmt.Errorf("the sections end at byte %d, the data at %d", offset, end)
	}
	return entries, nil
}

func parseEntry(b []byte) (entry, []byte, error) {
	if len(b) < entryBytes {
		return entry{}, nil, errTruncated
	}
	n := int(binary.LittleEndian.Uint16(b))
	if n == 0 || n > maxNameBytes || len(b) < entryBytes+n {
		return entry{}, nil, fmt.Errorf("a section name of %d bytes in the index", n)
	}
	name := string(b[2 : 2+n])
	b = b[2+n:]
	e := entry{
		name: name, dtype: dtype(b[0]),
		count: int64(binary.LittleEndian.Uint64(b[1:])), crc: binary.LittleEndian.Uint32(b[9:]),
	}
	switch {
	case !utf8.ValidString(name):
		return entry{}, nil, fmt.Errorf("section name %q is not UTF-8", name)
	case e.dtype.width() == 0:
		return entry{}, nil, fmt.Errorf("section %q has the unknown %v", name, e.dtype)
	}
	return e, b[entryBytes-2:], nil
}

// stream passes the bytes of a section to emit and checks them.
func (c *container) stream(e entry, buf []byte, emit func([]byte)) error {
	crc, left := uint32(0), e.count*int64(e.dtype.width())
	for at := e.offset; left > 0; {
		b := buf[:min(int64(len(buf)), left)]
		if _, err := c.r.ReadAt(b, at); err != nil {
			return fmt.Errorf("checkpoint: %s: section %q: %w", c.file, e.name, err)
		}
		crc = crc32.Update(crc, castagnoli, b)
		emit(b)
		at, left = at+int64(len(b)), left-int64(len(b))
	}
	if crc != e.crc {
		return fmt.Errorf("checkpoint: %s: section %q: the checksum differs: the file is damaged", c.file, e.name)
	}
	return nil
}

// read fills dst, which has the entry's type and length.
func (c *container) read(e entry, dst param.Section, buf []byte) error {
	return dst.With(true, func(dst param.Section) error {
		at := 0
		return c.stream(e, buf, func(b []byte) {
			decodeAt(dst, at, b)
			at += len(b) / e.dtype.width()
		})
	})
}

// load fills every section of dst. Names, types and lengths are checked before
// the first byte is written, and all data is read once before that when verify
// is set, so that a damaged file changes nothing.
func (c *container) load(dst []param.Section) error {
	found, err := c.match(dst)
	if err != nil {
		return err
	}
	buf := make([]byte, copyBytes)
	for _, e := range found {
		if err := c.stream(e, buf, func([]byte) {}); err != nil {
			return err
		}
	}
	for i, e := range found {
		if err := c.read(e, dst[i], buf); err != nil {
			return err
		}
	}
	return nil
}

// match finds the entry of each section of dst, and reports every name that is
// missing, unexpected or of another type or length.
func (c *container) match(dst []param.Section) ([]entry, error) {
	have := make(map[string]entry, len(c.entries))
	for _, e := range c.entries {
		have[e.name] = e
	}
	m := &MismatchError{File: c.file}
	found := make([]entry, len(dst))
	for i, s := range dst {
		e, ok := have[s.Name]
		d, count := sectionType(s)
		switch {
		case !ok:
			m.Missing = append(m.Missing, s.Name)
		case e.dtype != d || e.count != count:
			m.Reshaped = append(m.Reshaped, fmt.Sprintf("%s: %v[%d] in the file, %v[%d] in the run", s.Name, e.dtype, e.count, d, count))
		}
		found[i] = e
		delete(have, s.Name)
	}
	for _, e := range c.entries {
		if _, extra := have[e.name]; extra {
			m.Unexpected = append(m.Unexpected, e.name)
		}
	}
	if m.any() {
		return nil, m
	}
	return found, nil
}

// digest adds all sections to h.
func (c *container) digest(h hash.Hash) error {
	buf := make([]byte, copyBytes)
	for _, e := range c.entries {
		hashHead(h, e.name, e.dtype, e.count)
		if err := c.stream(e, buf, func(b []byte) { h.Write(b) }); err != nil {
			return err
		}
	}
	return nil
}
