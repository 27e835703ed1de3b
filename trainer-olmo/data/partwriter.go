package data

import (
	"bufio"
	"compress/gzip"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strconv"
)

// partWriter writes token files under temporary names and gives all of them
// their names at the end. One goroutine.
//
// Note: a run that is killed must leave either nothing or everything that can be
// opened. So files are written in a hidden folder inside the output folder,
// synced, and renamed when the last one is complete. A kill between two renames
// leaves a prefix of the files, each with its list and metadata, which the next
// run refuses to mix with its own; the hidden folder is never read.
type partWriter struct {
	o      TokenizeOptions
	width  Width
	eos    int
	report TokenizeReport

	temp  string // folder inside the output folder
	parts int
	part  *openPart
}

// openPart is the token file being written and its list of documents.
type openPart struct {
	name   string // without folder
	tokens *sink
	list   *sink
	zip    *gzip.Writer
	csv    *csv.Writer
	sum    hash.Hash
	meta   Meta
	raw    []byte
}

// sink is a buffered file.
type sink struct {
	*bufio.Writer
	file *os.File
}

// newSink creates a file; a file of that name is cut.
func newSink(path string) (*sink, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	return &sink{bufio.NewWriterSize(f, 1<<18), f}, nil
}

// finish flushes, syncs and closes.
func (s *sink) finish() error {
	return errors.Join(s.Flush(), s.file.Sync(), s.file.Close())
}

// newPartWriter makes the temporary folder inside the output folder, because a
// rename is atomic only within one file system.
func newPartWriter(o TokenizeOptions) (*partWriter, error) {
	temp, err := os.MkdirTemp(o.Output, ".tokenize-")
	if err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	eos := o.Tokenizer.EOS()
	if o.NoEOS {
		eos = -1
	}
	w := &partWriter{o: o, width: WidthFor(o.Tokenizer.VocabSize()), eos: eos, temp: temp}
	w.report.Width = w.width
	return w, nil
}

// write appends the documents of a job.
func (w *partWriter) write(j *job) error {
	w.report.Bytes += int64(j.size)
	start := 0
	for i, end := range j.ends {
		ids := j.ids[start:end]
		start = end
		if len(ids) == 0 {
			w.report.Empty++
			continue
		}
		if err := w.document(j.docs[i], ids); err != nil {
			return err
		}
	}
	return nil
}

// document appends one document, in a new file when it would not fit the limit. A
// document longer than the limit gets a file of its own: documents are not cut.
func (w *partWriter) document(d document, ids []uint32) error {
	n := int64(len(ids))
	if w.eos >= 0 {
		n++
	}
	if p := w.part; p != nil && w.o.MaxTokens > 0 && p.meta.Tokens+n > w.o.MaxTokens {
		if err := w.finishPart(); err != nil {
			return err
		}
	}
	if w.part == nil {
		if err := w.startPart(); err != nil {
			return err
		}
	}
	w.report.Documents++
	w.report.Tokens += n
	return w.part.append(d, ids, w.width, w.eos)
}

// startPart opens the next token file and its list of documents.
func (w *partWriter) startPart() error {
	tok := w.o.Tokenizer
	p := &openPart{name: fmt.Sprintf("part-%05d.npy", w.parts), sum: sha256.New()}
	p.meta = Meta{Format: metaFormat, Version: metaVersion, DType: w.width.String(), MaxID: -1, VocabSize: tok.VocabSize(),
		EOS: w.eos, Pad: tok.Pad(), Tokenizer: tok.Name(), TokenHash: tok.Hash()}
	var err error
	if p.tokens, err = newSink(filepath.Join(w.temp, p.name)); err != nil {
		return err
	}
	if p.list, err = newSink(filepath.Join(w.temp, DocumentsPath(p.name))); err != nil {
		return errors.Join(err, p.tokens.file.Close())
	}
	p.zip = gzip.NewWriter(p.list)
	p.csv = csv.NewWriter(p.zip)
	w.part = p
	w.parts++
	return nil
}

// append writes the ids and the end of one document, and its line in the list. An
// id that the width cannot hold means that the tokenizer lies about its size; it
// is an error and never cut to fit.
func (p *openPart) append(d document, ids []uint32, width Width, eos int) error {
	p.raw = p.raw[:0] // reused: one document at a time
	for _, id := range ids {
		p.meta.MaxID = max(p.meta.MaxID, int64(id))
		p.raw = width.append(p.raw, id)
	}
	start := p.meta.Tokens
	p.meta.Tokens += int64(len(ids))
	if eos >= 0 {
		p.meta.MaxID = max(p.meta.MaxID, int64(eos))
		p.raw = width.append(p.raw, uint32(eos))
		p.meta.Tokens++
	}
	if p.meta.MaxID > width.MaxID() {
		return fmt.Errorf("data: tokenize: id %d of tokenizer %s does not fit %s", p.meta.MaxID, p.meta.Tokenizer, width)
	}
	p.meta.Documents++
	p.sum.Write(p.raw)
	if _, err := p.tokens.Write(p.raw); err != nil {
		return fmt.Errorf("data: write %s: %w", p.name, err)
	}
	err := p.csv.Write([]string{strconv.FormatInt(start, 10), strconv.FormatInt(p.meta.Tokens, 10), d.id, d.path, strconv.FormatInt(d.line, 10)})
	if err != nil {
		return fmt.Errorf("data: write the documents of %s: %w", p.name, err)
	}
	return nil
}

// finishPart closes the open token file and writes its metadata.
func (w *partWriter) finishPart() error {
	p := w.part
	w.part = nil
	p.csv.Flush()
	err := errors.Join(p.csv.Error(), p.zip.Close(), p.list.finish(), p.tokens.finish())
	if err != nil {
		return fmt.Errorf("data: write %s: %w", p.name, err)
	}
	p.meta.SHA256 = hex.EncodeToString(p.sum.Sum(nil))
	text, err := json.MarshalIndent(p.meta, "", "  ")
	if err != nil {
		return fmt.Errorf("data: %w", err)
	}
	if err := writeSynced(filepath.Join(w.temp, MetaPath(p.name)), append(text, '\n')); err != nil {
		return err
	}
	w.report.Files = append(w.report.Files, filepath.Join(w.o.Output, p.name))
	return nil
}

// writeSynced writes a small file and waits until it is on the disk.
func writeSynced(path string, content []byte) error {
	s, err := newSink(path)
	if err != nil {
		return err
	}
	_, err = s.Write(content)
	if err := errors.Join(err, s.finish()); err != nil {
		return fmt.Errorf("data: write %s: %w", path, err)
	}
	return nil
}

// commit moves all files to the output folder. A token file comes after what
// describes it, so that it is never seen without.
func (w *partWriter) commit() (TokenizeReport, error) {
	if w.part != nil {
		if err := w.finishPart(); err != nil {
			return w.report, err
		}
	}
	if err := w.removeOld(); err != nil {
		return w.report, err
	}
	for _, path := range w.report.Files {
		for _, name := range []string{DocumentsPath(path), MetaPath(path), path} {
			if err := os.Rename(filepath.Join(w.temp, filepath.Base(name)), name); err != nil {
				return w.report, fmt.Errorf("data: %w", err)
			}
		}
	}
	return w.report, syncFolder(w.o.Output)
}

// removeOld takes away what an earlier run wrote; only reached with Overwrite.
func (w *partWriter) removeOld() error {
	old, err := filepath.Glob(filepath.Join(w.o.Output, "part-*.npy"))
	if err != nil {
		return fmt.Errorf("data: %w", err)
	}
	for _, path := range old {
		for _, name := range []string{path, DocumentsPath(path), MetaPath(path)} {
			if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("data: %w", err)
			}
		}
	}
	return nil
}

// syncFolder makes renames in a folder durable, where the system can.
func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("data: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, os.ErrInvalid) {
		return fmt.Errorf("data: sync %s: %w", path, err)
	}
	return nil
}

// discard closes what is open and removes the temporary folder.
func (w *partWriter) discard() error {
	if p := w.part; p != nil {
		p.list.file.Close() // an error came first; what was written goes away
		p.tokens.file.Close()
	}
	if err := os.RemoveAll(w.temp); err != nil {
		return fmt.Errorf("data: %w", err)
	}
	return nil
}

// hashFile adds a file's content to h.
func hashFile(h io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("data: %w", err)
	}
	defer f.Close()
	if _, err := io.Copy(h, f); err != nil {
		return fmt.Errorf("data: read %s: %w", path, err)
	}
	return nil
}
