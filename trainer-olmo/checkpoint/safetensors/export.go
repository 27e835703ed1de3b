package safetensors

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/trainer-olmo/model"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// ExportOptions configure [Export]. The zero value writes one file in the
// parameters' own type, with a config.json of transformers 4 and no token ids.
type ExportOptions struct {
	// MaxShardBytes splits the tensors, in order, into files of at most this many
	// bytes of data; a larger tensor has a file to itself. 0 writes one file.
	MaxShardBytes int64
	// Form is the form of config.json.
	Form Transformers
	// Tokens are the token ids that config.json names.
	Tokens Tokens
	// DType is the type in the file: F32, F64 or BF16. Default that of the
	// parameters.
	DType DType
	// Extra are further files, such as tokenizer.json, by name.
	Extra map[string][]byte
	// Overwrite replaces a folder that has files in it.
	Overwrite bool
}

// Validate reports all faults.
func (o ExportOptions) Validate() error {
	var errs []error
	if o.MaxShardBytes < 0 {
		errs = append(errs, fmt.Errorf("safetensors: MaxShardBytes is %d, must not be negative", o.MaxShardBytes))
	}
	if o.Form != Transformers4 && o.Form != Transformers5 {
		errs = append(errs, fmt.Errorf("safetensors: unknown form %d of config.json", o.Form))
	}
	if o.DType != "" && o.DType != F32 && o.DType != F64 && o.DType != BF16 {
		errs = append(errs, fmt.Errorf("safetensors: cannot write type %q, only F32, F64 or BF16", o.DType))
	}
	for name := range o.Extra {
		if name != filepath.Base(name) || name == configFile {
			errs = append(errs, fmt.Errorf("safetensors: extra file %q is not a plain name", name))
		}
	}
	return errors.Join(errs...)
}

// Export writes a model as a folder that Hugging Face's class loads. The folder
// appears whole or not at all: it is written under a temporary name beside dir,
// synced and renamed. dir must not exist or be empty, unless o.Overwrite.
func Export[T gemm.Float](dir string, c model.Config, params []param.Param[T], o ExportOptions) error {
	if err := o.Validate(); err != nil {
		return err
	}
	if o.DType == "" {
		o.DType = own[T]()
	}
	config, err := FormatConfig(c, o.Form, o.Tokens, o.DType)
	if err != nil {
		return err
	}
	dir = filepath.Clean(dir)
	if err := mayReplace(dir, o.Overwrite); err != nil {
		return err
	}
	tmp := filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+".tmp")
	if err := os.RemoveAll(tmp); err != nil {
		return fmt.Errorf("safetensors: %w", err)
	}
	if err := os.MkdirAll(tmp, 0o777); err != nil {
		return fmt.Errorf("safetensors: %w", err)
	}
	err = writeFolder(tmp, config, params, o)
	if err == nil {
		err = replace(tmp, dir)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(tmp))
	}
	return nil
}

// own is the type of the parameters.
func own[T gemm.Float]() DType {
	var x T
	if _, ok := any(x).(float64); ok {
		return F64
	}
	return F32
}

// mayReplace refuses a folder with files before anything is written.
func mayReplace(dir string, overwrite bool) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("safetensors: %w", err)
	}
	if len(entries) > 0 && !overwrite {
		return fmt.Errorf("safetensors: %s is not empty", dir)
	}
	return nil
}

// replace renames tmp to dir. A folder with files that is in the way is renamed
// first and removed last, so that at every moment one of the two is whole.
func replace(tmp, dir string) error {
	old := filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+".old")
	if err := os.RemoveAll(old); err != nil {
		return fmt.Errorf("safetensors: %w", err)
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) { // not empty
		if err := os.Rename(dir, old); err != nil {
			return fmt.Errorf("safetensors: %w", err)
		}
	}
	if err := os.Rename(tmp, dir); err != nil {
		return fmt.Errorf("safetensors: %w", errors.Join(err, restore(old, dir)))
	}
	if err := syncDir(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.RemoveAll(old); err != nil {
		return fmt.Errorf("safetensors: %w", err)
	}
	return nil
}

// restore puts the old folder back, if one was moved away.
func restore(old, dir string) error {
	if err := os.Rename(old, dir); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// writeFolder writes all files of a folder that nobody reads yet.
func writeFolder[T gemm.Float](dir string, config []byte, params []param.Param[T], o ExportOptions) error {
	if err := writeFile(filepath.Join(dir, configFile), raw(config)); err != nil {
		return err
	}
	for _, name := range sortedKeys(o.Extra) {
		if err := writeFile(filepath.Join(dir, name), raw(o.Extra[name])); err != nil {
			return err
		}
	}
	shards := split(params, o.DType.Size(), o.MaxShardBytes)
	x := index{WeightMap: map[string]string{}}
	for i, shard := range shards {
		name := weightsFile
		if len(shards) > 1 {
			name = fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(shards))
		}
		if err := Write(filepath.Join(dir, name), shard, o.DType); err != nil {
			return err
		}
		for _, p := range shard {
			x.WeightMap[p.Name] = name
			x.Metadata.TotalSize += int64(len(p.Value)) * o.DType.Size()
		}
	}
	if len(shards) > 1 {
		if err := writeFile(filepath.Join(dir, indexFile), raw(appendJSON(nil, x))); err != nil {
			return err
		}
	}
	return syncDir(dir)
}

// split cuts the parameters into runs of at most limit bytes.
func split[T gemm.Float](params []param.Param[T], size, limit int64) [][]param.Param[T] {
	if limit == 0 {
		return [][]param.Param[T]{params}
	}
	var shards [][]param.Param[T]
	first, bytes := 0, int64(0)
	for i, p := range params {
		n := int64(len(p.Value)) * size
		if i > first && bytes+n > limit {
			shards = append(shards, params[first:i])
			first, bytes = i, 0
		}
		bytes += n
	}
	return append(shards, params[first:])
}

// Write writes one safetensors file with the tensors in the order given, synced.
// It is not atomic; [Export] is.
func Write[T gemm.Float](path string, params []param.Param[T], d DType) error {
	return writeFile(path, func(w io.Writer) error { return Encode(w, params, d) })
}

// Encode writes the content of a safetensors file with the tensors in the order
// given.
func Encode[T gemm.Float](w io.Writer, params []param.Param[T], d DType) error {
	infos := make([]Info, len(params))
	at := int64(0)
	for i, p := range params {
		n := int64(len(p.Value)) * d.Size()
		infos[i] = Info{Name: p.Name, DType: d, Shape: p.Shape, Begin: at, End: at + n}
		at += n
	}
	header, err := headerFor(infos, map[string]string{"format": "pt"})
	if err != nil {
		return err
	}
	if _, err := w.Write(header); err != nil {
		return err
	}
	buf := make([]byte, bufferBytes)
	for _, p := range params {
		if err := writeValues(w, p.Value, d, buf); err != nil {
			return err
		}
	}
	return nil
}

func writeValues[T gemm.Float](w io.Writer, values []T, d DType, buf []byte) error {
	size := int(d.Size())
	for len(values) > 0 {
		n := min(len(values), len(buf)/size)
		encode(d, buf[:n*size], values[:n])
		if _, err := w.Write(buf[:n*size]); err != nil {
			return err
		}
		values = values[n:]
	}
	return nil
}

// raw is a fill of writeFile.
func raw(data []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
}

// writeFile creates a file, lets fill write it and syncs it.
func writeFile(path string, fill func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return fmt.Errorf("safetensors: %w", err)
	}
	w := bufio.NewWriterSize(f, 1<<16)
	err = fill(w)
	for _, step := range []func() error{w.Flush, f.Sync} {
		if err == nil {
			err = step()
		}
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("safetensors: write %s: %w", path, err)
	}
	return nil
}

// syncDir makes renames and new names in a folder durable. Systems that cannot
// sync a folder say so, and that is no failure.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("safetensors: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, os.ErrInvalid) && !errors.Is(err, errors.ErrUnsupported) && !os.IsPermission(err) {
		return fmt.Errorf("safetensors: sync %s: %w", dir, err)
	}
	return nil
}
