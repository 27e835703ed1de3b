package safetensors

import (
	"path/filepath"
	"testing"

	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// benchTensors are 64 MiB of float32 weights.
func benchTensors() []param.Param[float32] {
	var ps []param.Param[float32]
	for i := range 16 {
		x := make([]float32, 1<<20)
		for j := range x {
			x[j] = float32(i+j) / 7
		}
		ps = append(ps, param.Param[float32]{Name: string(rune('a' + i)), Shape: []int{1024, 1024}, Value: x})
	}
	return ps
}

func BenchmarkLoad(b *testing.B) {
	for _, d := range []DType{F32, BF16} {
		b.Run("dtype="+string(d), func(b *testing.B) {
			dir, ps := b.TempDir(), benchTensors()
			if err := Write(filepath.Join(dir, weightsFile), ps, d); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(16<<20) * d.Size())
			for b.Loop() {
				if err := Load(dir, ps); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
