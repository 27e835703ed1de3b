package safetensors_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/trainer-olmo/checkpoint/safetensors"
	"github.com/asteria-runtime/asteria/trainer-olmo/model"
)

func newModel(eng *gemm.Engine) *model.Model[float32] {
	m, err := model.New[float32](model.Config{DModel: 16, NLayers: 1, NHeads: 2, HiddenSize: 24, VocabSize: 40}, eng)
	if err != nil {
		panic(err)
	}
	m.Init(1)
	return m
}

// A model is exported in shards, read back and compared bit for bit.
func Example() {
	base, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(base)
	eng := gemm.New(1)
	defer eng.Close()
	m := newModel(eng)
	defer m.Close()

	dir := filepath.Join(base, "model")
	if err := safetensors.Export(dir, m.Config(), m.Params(), safetensors.ExportOptions{MaxShardBytes: 8000}); err != nil {
		fmt.Println(err)
		return
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	for _, f := range files {
		fmt.Println(filepath.Base(f))
	}
	fmt.Println(safetensors.Verify(dir, m, eng))
	// Output:
	// config.json
	// model-00001-of-00002.safetensors
	// model-00002-of-00002.safetensors
	// model.safetensors.index.json
	// <nil>
}

// What does not fit is listed by name.
func ExampleLoad() {
	base, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(base)
	eng := gemm.New(1)
	defer eng.Close()
	m := newModel(eng)
	defer m.Close()

	params := m.Params()
	path := filepath.Join(base, "model.safetensors")
	if err := safetensors.Write(path, params[1:], safetensors.F32); err != nil {
		fmt.Println(err)
		return
	}
	var fault *safetensors.MismatchError
	fmt.Println(errors.As(safetensors.Load(base, params), &fault))
	fmt.Println(len(fault.Missing), len(fault.Unexpected))
	// Output:
	// true
	// 1 0
}
