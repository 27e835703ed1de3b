package safetensors

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The files of a model folder.
const (
	configFile  = "config.json"
	weightsFile = "model.safetensors"
	indexFile   = "model.safetensors.index.json"
)

// maxJSON bounds config.json and the index in bytes.
const maxJSON = MaxHeader

// Folder is an open model folder: the tensors of one file or of several shards.
type Folder struct {
	dir     string
	files   []*File
	tensors map[string]located
}

// located is a tensor and the file that has it.
type located struct {
	info Info
	file *File
}

// OpenFolder opens the safetensors files of a folder: model.safetensors, or the
// shards that model.safetensors.index.json names. With an index, every tensor
// must lie in the file that the index names and in no other. Close it when done.
func OpenFolder(dir string) (*Folder, error) {
	f := &Folder{dir: dir, tensors: map[string]located{}}
	if err := f.open(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// open adds the files. Both a single file and an index is refused: which of them
// is meant cannot be known.
func (f *Folder) open() error {
	index, err := readIndex(filepath.Join(f.dir, indexFile))
	if errors.Is(err, os.ErrNotExist) {
		return f.add(weightsFile)
	}
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(f.dir, weightsFile)); err == nil {
		return fmt.Errorf("safetensors: %s has both %s and %s", f.dir, weightsFile, indexFile)
	}
	shards := map[string]bool{}
	for _, file := range index.WeightMap {
		shards[file] = true
	}
	for _, file := range sortedKeys(shards) {
		if err := f.add(file); err != nil {
			return err
		}
	}
	return f.checkIndex(index)
}

// add opens a file of the folder.
func (f *Folder) add(name string) error {
	file, err := Open(filepath.Join(f.dir, name))
	if err != nil {
		return err
	}
	f.files = append(f.files, file)
	for _, t := range file.Tensors() {
		if other, ok := f.tensors[t.Name]; ok {
			return fmt.Errorf("safetensors: %s is in %s and in %s", t.Name, other.file.path, file.path)
		}
		f.tensors[t.Name] = located{t, file}
	}
	return nil
}

// checkIndex compares the index with the shards, both ways.
func (f *Folder) checkIndex(index index) error {
	var errs []error
	for _, name := range sortedKeys(index.WeightMap) {
		want := filepath.Join(f.dir, index.WeightMap[name])
		if t, ok := f.tensors[name]; !ok {
			errs = append(errs, fmt.Errorf("safetensors: %s says that %s is in %s, which lacks it", indexFile, name, want))
		} else if t.file.path != want {
			errs = append(errs, fmt.Errorf("safetensors: %s says that %s is in %s, it is in %s", indexFile, name, want, t.file.path))
		}
	}
	for _, name := range sortedKeys(f.tensors) {
		if _, ok := index.WeightMap[name]; !ok {
			errs = append(errs, fmt.Errorf("safetensors: %s of %s is not in %s", name, f.tensors[name].file.path, indexFile))
		}
	}
	return errors.Join(errs...)
}

// Close closes the files.
func (f *Folder) Close() error {
	var errs []error
	for _, file := range f.files {
		errs = append(errs, file.Close())
	}
	return errors.Join(errs...)
}

// Names lists the tensors, sorted.
func (f *Folder) Names() []string { return sortedKeys(f.tensors) }

// Lookup finds a tensor and the file that has it.
func (f *Folder) Lookup(name string) (Info, *File, bool) {
	t, ok := f.tensors[name]
	return t.info, t.file, ok
}

// sortedKeys gives loops over maps one order, for reports and reads.
func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// index is model.safetensors.index.json.
type index struct {
	Metadata  indexMeta         `json:"metadata"`
	WeightMap map[string]string `json:"weight_map"`
}

type indexMeta struct {
	TotalSize int64 `json:"total_size"`
}

// readIndex reads and checks the index by itself. A file name with a folder in it
// could point anywhere, so only plain names pass.
func readIndex(path string) (index, error) {
	var x index
	data, err := readBounded(path)
	if err != nil {
		return x, err
	}
	if err := json.Unmarshal(data, &x); err != nil {
		return x, fmt.Errorf("%s: %w", path, malformed("%v", err))
	}
	if len(x.WeightMap) == 0 {
		return x, fmt.Errorf("%s: %w", path, malformed("weight_map is empty"))
	}
	for _, name := range sortedKeys(x.WeightMap) {
		if file := x.WeightMap[name]; file != filepath.Base(file) || !strings.HasSuffix(file, ".safetensors") {
			return x, fmt.Errorf("%s: %w", path, malformed("%s is in %q, which is no safetensors file of the folder", name, file))
		}
	}
	return x, nil
}

// readBounded reads a small file.
func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxJSON+1))
	if err != nil {
		return nil, fmt.Errorf("safetensors: read %s: %w", path, err)
	}
	if len(data) > maxJSON {
		return nil, fmt.Errorf("%s: %w", path, malformed("more than %d bytes", maxJSON))
	}
	return data, nil
}
