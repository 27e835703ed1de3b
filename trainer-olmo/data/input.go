package data

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// Limits of one document, in bytes of text or of its JSON line.
const (
	maxPlainText = 1 << 30
	maxJSONLine  = 256 << 20
)

// document is one text to tokenize and where it came from.
type document struct {
	text []byte
	id   string
	path string
	line int64 // from 1; 1 for a file that is one document
}

// listInputs expands folders into the text files in them, sorted by path; names
// that begin with a dot are left out. Files that are named are taken whatever
// they are called.
func listInputs(inputs []string) ([]string, error) {
	var files []string
	for _, in := range inputs {
		info, err := os.Stat(in)
		if err != nil {
			return nil, fmt.Errorf("data: %w", err)
		}
		if !info.IsDir() {
			if filepath.Ext(in) == ".npy" {
				return nil, fmt.Errorf("data: %s is a token file already", in)
			}
			files = append(files, in)
			continue
		}
		found, err := textFilesUnder(in, IsText)
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("data: folder %s holds no text file (.txt, .text, .md, .json, .jsonl, .ndjson, also .gz and .zst)", in)
		}
		files = append(files, found...)
	}
	return files, nil
}

// textFilesUnder walks a folder; WalkDir goes in lexical order.
func textFilesUnder(root string, want func(string) bool) ([]string, error) {
	var files []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path != root && strings.HasPrefix(d.Name(), ".") {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if d.Type().IsRegular() && want(path) {
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	slices.Sort(files)
	return files, nil
}

// reading is an open text file behind its decompression.
type reading struct {
	io.Reader
	file *os.File
	zstd *zstd.Decoder
}

// openText opens a file for reading its text. Memory of the zstd decoder is
// bounded: a frame may ask for a window of any size.
func openText(path string) (*reading, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	r := &reading{Reader: f, file: f}
	compression, _ := splitName(path)
	switch compression {
	case ".gz":
		r.Reader, err = gzip.NewReader(bufio.NewReaderSize(f, 1<<16))
	case ".zst":
		r.zstd, err = zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(1<<30))
		r.Reader = r.zstd
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("data: %s is no %s file: %w", path, compression, err), f.Close())
	}
	return r, nil
}

// close ends the decompression, which may own goroutines, then the file.
func (r *reading) close() {
	if r.zstd != nil {
		r.zstd.Close()
	}
	r.file.Close() // opened for reading: nothing to lose
}

// eachDocument calls visit for the documents of a file in their order. name is
// the path to report.
func (o TokenizeOptions) eachDocument(path, name string, visit func(document) error) error {
	r, err := openText(path)
	if err != nil {
		return err
	}
	defer r.close()
	if _, kind := splitName(path); kind == jsonLines {
		return o.eachLine(r, path, name, visit)
	}
	text, err := io.ReadAll(io.LimitReader(r, maxPlainText+1))
	if err != nil {
		return fmt.Errorf("data: read %s: %w", path, err)
	}
	if len(text) > maxPlainText {
		return fmt.Errorf("data: %s is one document of more than %d bytes; split it, or write JSON lines", path, maxPlainText)
	}
	return visit(document{text: text, id: name, path: name, line: 1})
}

// eachLine reads JSON lines: empty lines are skipped but counted, so that line
// numbers are those an editor shows.
func (o TokenizeOptions) eachLine(r io.Reader, path, name string, visit func(document) error) error {
	in := bufio.NewReaderSize(r, 1<<16)
	var buf []byte
	for line := int64(1); ; line++ {
		raw, err := readLine(in, buf[:0])
		buf = raw
		if err == io.EOF && len(raw) == 0 {
			return nil
		}
		if err != nil && err != io.EOF {
			return fmt.Errorf("data: %s line %d: %w", path, line, err)
		}
		if len(bytes.TrimSpace(raw)) == 0 {
			continue
		}
		d, err := o.parseLine(raw)
		if err != nil {
			return fmt.Errorf("data: %s line %d: %w", path, line, err)
		}
		d.path, d.line = name, line
		if err := visit(d); err != nil {
			return err
		}
	}
}

// readLine appends one line without its end to buf.
func readLine(in *bufio.Reader, buf []byte) ([]byte, error) {
	for {
		part, err := in.ReadSlice('\n')
		buf = append(buf, part...)
		switch {
		case len(buf) > maxJSONLine:
			return buf, fmt.Errorf("longer than %d bytes", maxJSONLine)
		case err == bufio.ErrBufferFull:
			continue
		}
		return bytes.TrimSuffix(buf, []byte("\n")), err
	}
}

// parseLine reads the text and the id of one JSON object; other keys are not
// looked at.
func (o TokenizeOptions) parseLine(raw []byte) (document, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(raw, &object); err != nil {
		return document{}, fmt.Errorf("not a JSON object: %w", err)
	}
	key := orDefault(o.TextKey, "text")
	value, ok := object[key]
	if !ok {
		return document{}, fmt.Errorf("no key %q; its keys are %q", key, keysOf(object))
	}
	var text *string
	if err := json.Unmarshal(value, &text); err != nil || text == nil {
		return document{}, fmt.Errorf("key %q is not a string", key)
	}
	return document{text: []byte(*text), id: idText(object[orDefault(o.IDKey, "id")])}, nil
}

// keysOf lists what an object has, for the message about what it lacks.
func keysOf(object map[string]json.RawMessage) []string {
	keys := make([]string, 0, len(object))
	for k := range object {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// idText is a string's content and any other value's JSON.
func idText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}
