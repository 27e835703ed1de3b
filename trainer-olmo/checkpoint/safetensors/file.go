package safetensors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/asteria-runtime/asteria/gemm"
)

// File is an open safetensors file. It is safe for concurrent use.
type File struct {
	path    string
	f       io.ReaderAt
	close   func() error
	data    int64 // offset of the first tensor
	tensors []Info
	meta    map[string]string
}

// Open reads and checks the header of a file. Close it when done.
func Open(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	stat, err := f.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("safetensors: %w", err), f.Close())
	}
	if !stat.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("safetensors: %s is not a regular file", path), f.Close())
	}
	file, err := Parse(path, f, stat.Size())
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	file.close = f.Close
	return file, nil
}

// Parse reads and checks the header of a file of size bytes that the caller has
// open; path names it in errors. The result needs no Close.
func Parse(path string, f io.ReaderAt, size int64) (*File, error) {
	var prefix [8]byte
	if size < int64(len(prefix)) {
		return nil, fmt.Errorf("%s: %w", path, malformed("%d bytes are too few", size))
	}
	if _, err := f.ReadAt(prefix[:], 0); err != nil {
		return nil, fmt.Errorf("safetensors: read %s: %w", path, err)
	}
	n := binary.LittleEndian.Uint64(prefix[:])
	if n > MaxHeader || int64(n) > size-8 {
		return nil, fmt.Errorf("%s: %w", path, malformed("header of %d bytes in a file of %d", n, size))
	}
	header := make([]byte, n)
	if _, err := f.ReadAt(header, 8); err != nil && !(errors.Is(err, io.EOF) && n == 0) {
		return nil, fmt.Errorf("safetensors: read %s: %w", path, err)
	}
	tensors, meta, err := parseHeader(header, size-8-int64(n))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &File{path: path, f: f, data: 8 + int64(n), tensors: tensors, meta: meta}, nil
}

// Close closes the file.
func (f *File) Close() error {
	if f.close == nil {
		return nil
	}
	return f.close()
}

// Path is the name the file was opened by.
func (f *File) Path() string { return f.path }

// Tensors lists the tensors in the order of their data.
func (f *File) Tensors() []Info { return f.tensors }

// Metadata is the header's map of strings, such as format: pt.
func (f *File) Metadata() map[string]string { return f.meta }

// bufferBytes is the size of the pieces in which tensors are read and written, a
// multiple of every element size.
const bufferBytes = 1 << 20

// Read sets dst, of [Info.Len] elements, to a tensor of f.
func Read[T gemm.Float](f *File, info Info, dst []T) error {
	if !info.DType.floats() {
		return fmt.Errorf("safetensors: %s: %s has type %s, want F32, F64, BF16 or F16", f.path, info.Name, info.DType)
	}
	if int64(len(dst)) != info.Len() {
		return fmt.Errorf("safetensors: %s: %s has %d elements, room for %d", f.path, info.Name, info.Len(), len(dst))
	}
	size := int(info.DType.Size())
	buf := make([]byte, min(int64(bufferBytes), info.End-info.Begin))
	for at := f.data + info.Begin; len(dst) > 0; at += int64(len(buf)) {
		n := min(len(dst), len(buf)/size)
		buf = buf[:n*size]
		if _, err := f.f.ReadAt(buf, at); err != nil {
			return fmt.Errorf("safetensors: read %s of %s: %w", info.Name, f.path, cut(err))
		}
		decode(info.DType, dst[:n], buf)
		dst = dst[n:]
	}
	return nil
}

// cut names the end of a file that was longer when it was opened.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// headerFor builds the header of tensors stored one after the other, padded with
// spaces so that the data is aligned to 8 bytes.
func headerFor(tensors []Info, meta map[string]string) ([]byte, error) {
	h := append([]byte(nil), `{"__metadata__":`...)
	h = appendJSON(h, meta)
	for _, t := range tensors {
		h = append(h, ',')
		h = appendJSON(h, t.Name)
		h = append(h, ':')
		h = appendJSON(h, entry{t.DType, t.Shape, [2]int64{t.Begin, t.End}})
	}
	h = append(h, '}')
	for len(h)%8 != 0 {
		h = append(h, ' ')
	}
	if len(h) > MaxHeader || len(h) > math.MaxInt32 {
		return nil, fmt.Errorf("safetensors: header of %d bytes is longer than %d", len(h), MaxHeader)
	}
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(h))), h...), nil
}

// entry is a tensor in the header.
type entry struct {
	DType   DType    `json:"dtype"`
	Shape   []int    `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}
