package data

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// tokenFile is a checked file of ids, of which the tokens [part.start, part.end)
// are served.
type tokenFile struct {
	path   string
	mask   string // file of bool bytes, or ""
	width  Width
	tokens int64
	meta   *Meta
	part   extent
}

// maxOpen bounds the open files of a reader: data sets have tens of thousands,
// systems allow a process about a thousand, and shuffling visits all of them.
const maxOpen = 128

// reader reads extents of token files and of their masks with pread, keeping
// the files used last open. One goroutine.
type reader struct {
	open  map[string]*openFile
	clock int64
	raw   []byte
	whose string // whose ids the vocabulary has, for errors
}

// openFile is a file with the reader's clock at its last use.
type openFile struct {
	file *os.File
	used int64
}

// at fills the scratch buffer with n bytes from an offset of a file. The result
// is valid until the next call.
func (r *reader) at(path string, offset int64, n int) ([]byte, error) {
	f, err := r.handle(path)
	if err != nil {
		return nil, err
	}
	r.raw = sized(r.raw, n)
	got, err := f.ReadAt(r.raw, offset)
	if got == n {
		return r.raw, nil
	}
	if err == io.EOF {
		return nil, fmt.Errorf("data: %s ends at byte %d, inside the %d bytes from %d: the file was cut while in use", path, offset+int64(got), n, offset)
	}
	return nil, fmt.Errorf("data: read %s at byte %d: %w", path, offset, err)
}

// handle opens a file, or finds it open. It allocates only when it opens.
func (r *reader) handle(path string) (*os.File, error) {
	r.clock++
	if f := r.open[path]; f != nil {
		f.used = r.clock
		return f.file, nil
	}
	if len(r.open) >= maxOpen {
		r.closeOldest()
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	if r.open == nil {
		r.open = make(map[string]*openFile)
	}
	r.open[path] = &openFile{file: f, used: r.clock}
	return f, nil
}

// closeOldest makes room for one more file. A linear search is enough: it happens
// once for every file opened, which costs far more.
func (r *reader) closeOldest() {
	oldest, at := "", int64(0)
	for path, f := range r.open {
		if oldest == "" || f.used < at {
			oldest, at = path, f.used
		}
	}
	r.open[oldest].file.Close() // opened for reading: nothing to lose
	delete(r.open, oldest)
}

// close closes all files; the reader can be used again and opens them anew.
func (r *reader) close() error {
	var errs []error
	for _, f := range r.open {
		errs = append(errs, f.file.Close())
	}
	r.open = nil
	return errors.Join(errs...)
}

// tokens decodes an extent of a file into dst and refuses ids of vocab or more.
func (r *reader) tokens(dst []int32, f *tokenFile, e extent, vocab int) error {
	raw, err := r.at(f.path, e.start*int64(f.width), len(dst)*int(f.width))
	if err != nil {
		return err
	}
	if bad := f.width.decode(dst, raw, int64(vocab)); bad >= 0 {
		return r.rangeError(f, e.start+int64(bad), f.width.value(raw, bad), vocab)
	}
	return nil
}

// masks reads the extent's bools into dst.
func (r *reader) masks(dst []bool, f *tokenFile, e extent) error {
	raw, err := r.at(f.mask, e.start, len(dst))
	if err != nil {
		return err
	}
	for i, b := range raw {
		if b > 1 {
			return fmt.Errorf("data: %s: byte %d is %d, allowed 0 and 1", f.mask, e.start+int64(i), b)
		}
		dst[i] = b == 1
	}
	return nil
}

// rangeError says what usually causes an id out of range.
func (r *reader) rangeError(f *tokenFile, token int64, id uint64, vocab int) error {
	return fmt.Errorf("data: %s: token %d (byte %d) is %d, allowed 0 to %d%s; is the file %s, and written with this vocabulary?",
		f.path, token, token*int64(f.width), id, vocab-1, r.whose, f.width)
}

// statTokens checks a token file's size against its width.
func statTokens(path string, w Width) (int64, error) {
	size, err := fileSize(path)
	if err != nil {
		return 0, err
	}
	if size%int64(w) != 0 {
		return 0, fmt.Errorf("data: %s has %d bytes, not a multiple of the %d of one %s id: another width, or the file was cut", path, size, int(w), w)
	}
	return size / int64(w), nil
}

// fileSize is the size of a regular file. Folders and pipes are refused here,
// where the message can say so, rather than at the first read.
func fileSize(path string) (int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, fmt.Errorf("data: %w", err)
	}
	if !info.Mode().IsRegular() {
		return 0, fmt.Errorf("data: %s is not a regular file", path)
	}
	return info.Size(), nil
}

// npyMagic begins a file with a numpy header.
const npyMagic = "\x93NUMPY"

// refuseHeader tells a real .npy file, which has a header, from the raw files
// of the same name that are read here.
func (r *reader) refuseHeader(f *tokenFile) error {
	n := len(npyMagic)
	if f.tokens*int64(f.width) < int64(n) {
		return nil
	}
	raw, err := r.at(f.path, 0, n)
	if err != nil {
		return err
	}
	if string(raw) == npyMagic {
		return fmt.Errorf("data: %s has a numpy header; token files are raw ids without one (numpy.memmap or array.tofile writes them)", f.path)
	}
	return nil
}

// base is the name by which a fingerprint knows a file: data may move to another
// folder or machine between the parts of a run, as in OLMo-core.
func (f *tokenFile) base() string { return filepath.Base(f.path) }
