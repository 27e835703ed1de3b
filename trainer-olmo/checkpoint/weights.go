package checkpoint

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"
	"slices"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/trainer-olmo/checkpoint/safetensors"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// TensorSum is the CRC-32C of a weight's bytes. The safetensors format has no
// checksums, so they are in the metadata.
type TensorSum struct {
	Name string `json:"name"`
	CRC  uint32 `json:"crc32c"`
}

// byName sorts weights, the order of the file and of the digest.
func byName(ts []Tensor) []Tensor {
	ts = slices.Clone(ts)
	slices.SortFunc(ts, func(a, b Tensor) int { return cmp.Compare(a.Name, b.Name) })
	return ts
}

// weightSections lists the weights, sorted.
func weightSections(ts []Tensor) []param.Section {
	var out []param.Section
	for _, t := range byName(ts) {
		out = append(out, t.Section)
	}
	return out
}

// double reports whether the weights are float64; they are all of one type.
func double(ts []Tensor) bool { return len(ts) > 0 && ts[0].F64 != nil }

// writeWeights writes the weights as a safetensors file.
func writeWeights(w io.Writer, ts []Tensor) error {
	ts = byName(ts)
	if double(ts) {
		return safetensors.Encode(w, tensorParams(ts, func(t Tensor) []float64 { return t.F64 }), safetensors.F64)
	}
	return safetensors.Encode(w, tensorParams(ts, func(t Tensor) []float32 { return t.F32 }), safetensors.F32)
}

func tensorParams[T gemm.Float](ts []Tensor, values func(Tensor) []T) []param.Param[T] {
	out := make([]param.Param[T], len(ts))
	for i, t := range ts {
		out[i] = param.Param[T]{Name: t.Name, Shape: t.Shape, Value: values(t)}
	}
	return out
}

// weightSums is the checksum of each weight.
func weightSums(ts []Tensor) []TensorSum {
	var out []TensorSum
	buf := make([]byte, copyBytes)
	for _, t := range byName(ts) {
		s := TensorSum{Name: t.Name}
		_ = encode(t.Section, buf, func(b []byte) error {
			s.CRC = crc32.Update(s.CRC, castagnoli, b)
			return nil
		})
		out = append(out, s)
	}
	return out
}

// weightFile is an open model.safetensors. Its entries have the form of a
// container's, so that reading and checking is the same.
type weightFile struct {
	container
	file  *safetensors.File
	infos map[string]safetensors.Info
}

// openWeights reads the header and places the entries.
func openWeights(r io.ReaderAt, size int64, path string, sums []TensorSum) (*weightFile, error) {
	f, err := safetensors.Parse(path, r, size)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	var head [8]byte
	if _, err := r.ReadAt(head[:], 0); err != nil {
		return nil, fmt.Errorf("checkpoint: %s: %w", path, err)
	}
	data := int64(len(head)) + int64(binary.LittleEndian.Uint64(head[:]))
	crc := make(map[string]uint32, len(sums))
	for _, s := range sums {
		crc[s.Name] = s.CRC
	}
	w := &weightFile{container: container{file: path, r: r}, file: f, infos: map[string]safetensors.Info{}}
	for _, info := range f.Tensors() {
		d := map[safetensors.DType]dtype{safetensors.F32: float32Type, safetensors.F64: float64Type}[info.DType]
		if d == 0 {
			return nil, fmt.Errorf("checkpoint: %s: %s is stored as %s, a checkpoint has F32 or F64", path, info.Name, info.DType)
		}
		w.infos[info.Name] = info
		w.entries = append(w.entries, entry{name: info.Name, dtype: d, count: info.Len(), crc: crc[info.Name], offset: data + info.Begin})
	}
	slices.SortFunc(w.entries, func(a, b entry) int { return cmp.Compare(a.name, b.name) })
	return w, nil
}

// loadTensors fills the tensors, after shapes and checksums have been checked.
func (w *weightFile) loadTensors(ts []Tensor) error {
	m := &MismatchError{File: w.container.file}
	for _, t := range ts {
		if info, ok := w.infos[t.Name]; ok && !slices.Equal(info.Shape, t.Shape) {
			m.Reshaped = append(m.Reshaped, fmt.Sprintf("%s: %v in the file, %v in the run", t.Name, info.Shape, t.Shape))
		}
	}
	sections := weightSections(ts)
	_, err := w.match(sections)
	if other, ok := err.(*MismatchError); ok {
		m.Missing, m.Unexpected = other.Missing, other.Unexpected
		if len(m.Reshaped) == 0 {
			m.Reshaped = other.Reshaped // types
		}
	}
	if m.any() {
		return m
	}
	return w.load(sections)
}

// withWeights opens the weights for the time of use.
func (c *Checkpoint) withWeights(use func(*weightFile) error) error {
	path := filepath.Join(c.path, weightsFile)
	return c.open(weightsFile, func(r io.ReaderAt, size int64) error {
		w, err := openWeights(r, size, path, c.Meta.Tensors)
		if err != nil {
			return err
		}
		return use(w)
	})
}
