package checkpoint

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// maxMetaBytes bounds metadata.json for a reader.
const maxMetaBytes = 1 << 24

// Checkpoint is a complete checkpoint, open for reading.
type Checkpoint struct {
	fs   FS
	path string
	Meta Meta
	// PassedOver says why newer folders were not taken.
	PassedOver []error
}

// Path is the checkpoint's folder.
func (c *Checkpoint) Path() string { return c.path }

// Latest opens the newest complete checkpoint in a folder of checkpoints. Newer
// folders that are not complete are passed over and named in
// [Checkpoint.PassedOver]. In a folder without any the error is [ErrNone]; when
// there are some and none is complete, it says what is wrong with each.
func Latest(dir string) (*Checkpoint, error) { return latest(OS{}, dir) }

// Latest opens the newest complete checkpoint of the store.
func (s *Store) Latest() (*Checkpoint, error) { return latest(s.opts.FS, s.dir) }

func latest(f FS, dir string) (*Checkpoint, error) {
	steps, err := list(f, dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var passed []error
	for _, step := range slices.Backward(steps) {
		c, err := load(f, filepath.Join(dir, prefix+strconv.FormatInt(step, 10)))
		if err == nil {
			c.PassedOver = passed
			return c, nil
		}
		passed = append(passed, err)
	}
	if len(passed) > 0 {
		return nil, errors.Join(passed...)
	}
	return nil, fmt.Errorf("%w in %s", ErrNone, dir)
}

// errIncomplete marks a folder without metadata or with files of another size.
var errIncomplete = errors.New("the checkpoint is not complete")

// Load opens the checkpoint in a folder. The folder may also be that of a run or
// of a store; the newest checkpoint is opened then.
func Load(path string) (*Checkpoint, error) {
	f := OS{}
	c, err := load(f, path)
	if err == nil || !errors.Is(err, errIncomplete) {
		return c, err
	}
	for _, dir := range []string{filepath.Join(path, "checkpoints"), path} {
		if c, lerr := latest(f, dir); lerr == nil || !errors.Is(lerr, ErrNone) {
			return c, lerr
		}
	}
	return nil, err
}

// load checks that the folder is complete: metadata of this format, and every
// file with its size.
func load(f FS, path string) (*Checkpoint, error) {
	meta, err := readMeta(f, path)
	if err != nil {
		return nil, err
	}
	for _, ref := range meta.Files {
		size, err := fileSize(f, filepath.Join(path, filepath.Base(ref.Name)))
		if err != nil {
			return nil, fmt.Errorf("checkpoint: %s: %w: %w", path, errIncomplete, err)
		}
		if size != ref.Bytes {
			return nil, fmt.Errorf("checkpoint: %s: %w: the file has %d bytes and should have %d", filepath.Join(path, ref.Name), errIncomplete, size, ref.Bytes)
		}
	}
	return &Checkpoint{fs: f, path: path, Meta: meta}, nil
}

func fileSize(f FS, path string) (int64, error) {
	r, err := f.Open(path)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	return r.Size()
}

// readMeta reads metadata.json of a checkpoint.
func readMeta(f FS, path string) (Meta, error) {
	r, err := f.Open(filepath.Join(path, metaFile))
	if err != nil {
		return Meta{}, fmt.Errorf("checkpoint: %s: %w: %w", path, errIncomplete, err)
	}
	defer r.Close()
	size, err := r.Size()
	if err == nil && size > maxMetaBytes {
		err = fmt.Errorf("%d bytes, at most %d are allowed", size, maxMetaBytes)
	}
	var meta Meta
	if err == nil {
		raw := make([]byte, size)
		if _, err = r.ReadAt(raw, 0); err == nil {
			meta, err = parseMeta(raw)
		}
	}
	if err != nil {
		return Meta{}, fmt.Errorf("checkpoint: %s: %w", filepath.Join(path, metaFile), err)
	}
	return meta, nil
}

// open opens a file for the time of use.
func (c *Checkpoint) open(name string, use func(r io.ReaderAt, size int64) error) error {
	r, err := c.fs.Open(filepath.Join(c.path, name))
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	defer r.Close()
	size, err := r.Size()
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return use(r, size)
}

// with opens a file of sections for the time of use.
func (c *Checkpoint) with(name string, use func(*container) error) error {
	return c.open(name, func(r io.ReaderAt, size int64) error {
		in, err := openContainer(r, size, filepath.Join(c.path, name))
		if err != nil {
			return err
		}
		return use(in)
	})
}

func (c *Checkpoint) sections(name string, dst []param.Section) error {
	return c.with(name, func(in *container) error { return in.load(dst) })
}

// Position reads where the run stood.
func (c *Checkpoint) Position() (Position, error) {
	var p Position
	s := p.sections()
	if err := c.sections(positionFile, s); err != nil {
		return Position{}, err
	}
	p.take(s)
	return p, nil
}

// Weights fills the tensors. Every tensor of the file and of dst must be in the
// other, with equal shape; a fault changes nothing and is reported in full.
func (c *Checkpoint) Weights(dst []Tensor) error {
	return c.withWeights(func(w *weightFile) error { return w.loadTensors(dst) })
}

// Optimizer fills the optimizer's state, with the rules of Weights.
func (c *Checkpoint) Optimizer(dst []param.Section) error { return c.sections(optimizerFile, dst) }

// Runtime fills the counters, with the rules of Weights. Beside counters they
// hold the refreshes of a second-order method that wait for their adoption.
func (c *Checkpoint) Runtime(dst []param.Section) error { return c.sections(runtimeFile, dst) }

// Digest reads all state, checks it, and returns its digest, which is compared
// with the one that was computed when it was saved.
func (c *Checkpoint) Digest() (Digest, error) {
	var d Digest
	h := sha256.New()
	if err := c.withWeights(func(w *weightFile) error { return w.digest(h) }); err != nil {
		return d, err
	}
	d.Weights = sum(h)
	for _, g := range groups(&d, &State{}) {
		h := sha256.New()
		if err := c.with(g.file, func(in *container) error { return in.digest(h) }); err != nil {
			return d, err
		}
		*g.digest = sum(h)
	}
	d = d.seal()
	if d != c.Meta.Digest {
		return d, fmt.Errorf("checkpoint: %s: the digest differs from the one in %s: the files are damaged or mixed", c.path, metaFile)
	}
	return d, nil
}

// DigestDir is the digest of the checkpoint in a folder, of a run's newest one.
func DigestDir(path string) (Digest, error) {
	c, err := Load(path)
	if err != nil {
		return Digest{}, err
	}
	return c.Digest()
}

// HasRuntime reports whether the checkpoint has a counter whose name begins with
// prefix.
func (c *Checkpoint) HasRuntime(prefix string) (found bool, err error) {
	err = c.with(runtimeFile, func(in *container) error {
		for _, e := range in.entries {
			found = found || strings.HasPrefix(e.name, prefix)
		}
		return nil
	})
	return found, err
}
