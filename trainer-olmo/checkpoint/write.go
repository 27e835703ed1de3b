package checkpoint

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
)

// folder writes the files of one checkpoint into a folder.
type folder struct {
	fs    FS
	path  string
	files []FileRef
}

// counted counts what passes.
type counted struct {
	w io.Writer
	n int64
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

// write creates a file, has body fill it, and syncs it.
func (f *folder) write(name string, body func(io.Writer) error) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("checkpoint: write %s: %w", filepath.Join(f.path, name), err)
		}
	}()
	file, err := f.fs.Create(filepath.Join(f.path, name))
	if err != nil {
		return err
	}
	w := &counted{w: file}
	err = body(w)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		f.files = append(f.files, FileRef{Name: name, Bytes: w.n})
	}
	return err
}

// content is the body of a file whose content is at hand.
func content(b []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	}
}

// writeState writes all files, metadata last.
func (f *folder) writeState(st *State) error {
	meta := Meta{Format: Format, Position: st.Position, Origin: st.Origin, Ephemeral: st.Ephemeral, Tensors: weightSums(st.Weights)}
	if err := f.write(weightsFile, func(w io.Writer) error { return writeWeights(w, st.Weights) }); err != nil {
		return err
	}
	meta.Digest.Weights = digestSections(weightSections(st.Weights))
	for _, g := range groups(&meta.Digest, st) {
		h := sha256.New()
		err := f.write(g.file, func(w io.Writer) error { return writeContainer(w, g.sections, h) })
		if err != nil {
			return err
		}
		*g.digest = sum(h)
	}
	for _, x := range []struct {
		name string
		b    []byte
	}{{configFile, st.Config}, {modelFile, st.ModelConfig}} {
		if x.b == nil {
			continue
		}
		if err := f.write(x.name, content(x.b)); err != nil {
			return err
		}
	}
	meta.Files, meta.Digest = f.files, meta.Digest.seal()
	raw, err := json.MarshalIndent(meta, "", "  ")
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if err := f.write(metaFile, content(append(raw, '\n'))); err != nil {
		return err
	}
	if err := f.fs.SyncDir(f.path); err != nil {
		return fmt.Errorf("checkpoint: sync %s: %w", f.path, err)
	}
	return nil
}
