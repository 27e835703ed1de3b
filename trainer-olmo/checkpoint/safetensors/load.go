package safetensors

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/trainer-olmo/model"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// ErrMismatch is what a [MismatchError] is.
var ErrMismatch = errors.New("safetensors: tensors do not fit the model")

// MismatchError lists every tensor that stops a folder from being loaded.
type MismatchError struct {
	Missing    []string // "NAME, not in FILE"
	Unexpected []string // "NAME of FILE"
	Reshaped   []string // "NAME of FILE: [a b], want [c d]"
	WrongType  []string // "NAME of FILE: I64, want …"
}

// Error lists all faults, one a line.
func (e *MismatchError) Error() string {
	var b strings.Builder
	b.WriteString(ErrMismatch.Error())
	for _, l := range []struct {
		word  string
		names []string
	}{{"missing", e.Missing}, {"unexpected", e.Unexpected}, {"wrong shape", e.Reshaped}, {"wrong type", e.WrongType}} {
		for _, n := range l.names {
			fmt.Fprintf(&b, "\n  %s: %s", l.word, n)
		}
	}
	return b.String()
}

// Is makes the error an [ErrMismatch].
func (e *MismatchError) Is(target error) bool { return target == ErrMismatch }

func (e *MismatchError) any() bool {
	return len(e.Missing)+len(e.Unexpected)+len(e.Reshaped)+len(e.WrongType) > 0
}

// ReadConfig reads the configuration of a folder. The vocabulary is the number
// of rows of the embeddings, which config.json may state differently.
func ReadConfig(dir string) (model.Config, error) {
	f, err := OpenFolder(dir)
	if err != nil {
		return model.Config{}, err
	}
	c, err := f.Config()
	return c, errors.Join(err, f.Close())
}

// Config is [ReadConfig] of an open folder.
func (f *Folder) Config() (model.Config, error) {
	data, err := readBounded(filepath.Join(f.dir, configFile))
	if err != nil {
		return model.Config{}, err
	}
	c, err := ParseConfig(data)
	if err != nil {
		return c, fmt.Errorf("%s: %w", f.dir, err)
	}
	if info, _, ok := f.Lookup("model.embed_tokens.weight"); ok && len(info.Shape) == 2 {
		c.VocabSize = info.Shape[0]
	}
	return c, c.Validate()
}

// Import reads a folder's configuration and weights into a new model. Nothing is
// returned unless every tensor fits.
func Import[T gemm.Float](dir string, eng *gemm.Engine) (*model.Model[T], error) {
	f, err := OpenFolder(dir)
	if err != nil {
		return nil, err
	}
	m, err := importFolder[T](f, eng)
	return m, errors.Join(err, f.Close())
}

// importFolder compares all tensors before it allocates a model of their size.
func importFolder[T gemm.Float](f *Folder, eng *gemm.Engine) (*model.Model[T], error) {
	c, err := f.Config()
	if err != nil {
		return nil, err
	}
	if err := f.check(c.Shapes()); err != nil {
		return nil, err
	}
	m, err := model.New[T](c, eng)
	if err != nil {
		return nil, err
	}
	if err := LoadFolder(f, m.Params()); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// Load reads the weights of a folder into parameters. All names and shapes are
// checked before the first parameter is written.
func Load[T gemm.Float](dir string, params []param.Param[T]) error {
	f, err := OpenFolder(dir)
	if err != nil {
		return err
	}
	return errors.Join(LoadFolder(f, params), f.Close())
}

// LoadFolder is [Load] from an open folder.
func LoadFolder[T gemm.Float](f *Folder, params []param.Param[T]) error {
	want := make([]model.Tensor, len(params))
	for i, p := range params {
		want[i] = model.Tensor{Name: p.Name, Shape: p.Shape}
	}
	if err := f.check(want); err != nil {
		return err
	}
	for _, p := range params {
		t := f.tensors[p.Name]
		if err := Read(t.file, t.info, p.Value); err != nil {
			return err
		}
	}
	return nil
}

// check compares the folder's tensors with those of a model.
func (f *Folder) check(want []model.Tensor) error {
	var e MismatchError
	expected := map[string]bool{}
	for _, w := range want {
		expected[w.Name] = true
		t, ok := f.tensors[w.Name]
		switch {
		case !ok:
			e.Missing = append(e.Missing, fmt.Sprintf("%s, not in %s", w.Name, f.where()))
		case !slices.Equal(t.info.Shape, w.Shape):
			e.Reshaped = append(e.Reshaped, fmt.Sprintf("%s of %s: %v, want %v", w.Name, t.file.path, t.info.Shape, w.Shape))
		case !t.info.DType.floats():
			e.WrongType = append(e.WrongType, fmt.Sprintf("%s of %s: %s, want F32, F64, BF16 or F16", w.Name, t.file.path, t.info.DType))
		}
	}
	for _, name := range f.Names() {
		if !expected[name] {
			e.Unexpected = append(e.Unexpected, fmt.Sprintf("%s of %s", name, f.tensors[name].file.path))
		}
	}
	if e.any() {
		return &e
	}
	return nil
}

// where names the files that were searched.
func (f *Folder) where() string {
	if len(f.files) == 1 {
		return f.files[0].path
	}
	return filepath.Join(f.dir, indexFile)
}
