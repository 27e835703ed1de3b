package model

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/asteria-runtime/asteria/gemm"
)

// goldenFamilies are the families of the set that this package's files belong
// to; a folder with none of them is a mistake, not a reason to skip.
var goldenFamilies = []string{
	"param_counts*", "model_*", "op_*", "optim*", "lr_*", "data_*", "tokenizer*", "train_trajectory_*",
}

// goldenDir is the folder of the golden files.
func goldenDir() string {
	if dir := os.Getenv("ASTERIA_GOLDEN_OLMO"); dir != "" {
		return dir
	}
	return filepath.Join("testdata", "golden")
}

// golden runs f on every file of a family, as a subtest each.
func golden(t *testing.T, family string, f func(t *testing.T, data []byte)) {
	t.Helper()
	dir, any := goldenDir(), 0
	for _, g := range goldenFamilies {
		files, err := filepath.Glob(filepath.Join(dir, g+".json"))
		if err != nil {
			t.Fatal(err)
		}
		any += len(files)
	}
	if any == 0 {
		t.Fatalf("no golden file in %s", dir)
	}
	files, _ := filepath.Glob(filepath.Join(dir, family+".json"))
	if len(files) == 0 {
		t.Skipf("no %s.json in %s", family, dir)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			f(t, data)
		})
	}
}

// numbers is a nested list of numbers of any depth, flattened, or null.
type numbers struct {
	v     []float64
	shape []int
}

func (n *numbers) UnmarshalJSON(data []byte) error {
	var x any
	if err := json.Unmarshal(data, &x); err != nil || x == nil {
		return err
	}
	for y := x; ; {
		l, ok := y.([]any)
		if !ok {
			break
		}
		n.shape = append(n.shape, len(l))
		if len(l) == 0 {
			break
		}
		y = l[0]
	}
	n.flatten(x)
	return nil
}

func (n *numbers) flatten(x any) {
	switch x := x.(type) {
	case float64:
		n.v = append(n.v, x)
	case bool:
		n.v = append(n.v, map[bool]float64{true: 1}[x])
	case []any:
		for _, y := range x {
			n.flatten(y)
		}
	}
}

// last is the innermost dimension.
func (n numbers) last() int { return n.shape[len(n.shape)-1] }

func to[T gemm.Float](x []float64) []T {
	y := make([]T, len(x))
	for i, v := range x {
		y[i] = T(v)
	}
	return y
}

func toInt32(x []float64) []int32 {
	y := make([]int32, len(x))
	for i, v := range x {
		y[i] = int32(v)
	}
	return y
}

// tolerance is what a golden file states: a difference d from want passes when
// d <= abs + rel*|want|.
type tolerance struct{ abs, rel float64 }

type goldenTolerance struct {
	Float64Abs float64 `json:"float64_abs"`
	Float32Abs float64 `json:"float32_abs"`
	Float32Rel float64 `json:"float32_rel"`
}

// toleranceOf gives the tolerance of an element type. In float32 the absolute part
// is for values of order one: larger ones (the files have some near 1000) cannot
// be stored that exactly, so it also serves as relative part where the file
// states none.
func toleranceOf[T gemm.Float](g goldenTolerance) tolerance {
	var x T
	if _, ok := any(x).(float64); ok {
		return tolerance{abs: g.Float64Abs}
	}
	return tolerance{abs: g.Float32Abs, rel: max(g.Float32Abs, g.Float32Rel)}
}

// near fails when an element of got is further from want than tol.
func near[T gemm.Float](t *testing.T, what string, got []T, want []float64, tol tolerance) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d elements, want %d", what, len(got), len(want))
	}
	worst, at := -1.0, 0
	for i, w := range want {
		d := abs(float64(got[i])-w) - tol.abs - tol.rel*abs(w)
		if !(d <= worst) || d != d {
			worst, at = d, i
		}
		if d != d {
			break
		}
	}
	if worst > 0 || worst != worst {
		t.Errorf("%s[%d] = %.17g, want %.17g: off by %g", what, at, got[at], want[at], abs(float64(got[at])-want[at]))
	}
}

func nearOne(t *testing.T, what string, got, want float64, tol tolerance) {
	t.Helper()
	near(t, what, []float64{got}, []float64{want}, tol)
}

func abs(x float64) float64 { return max(x, -x) }

func decode(t *testing.T, data []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatal(err)
	}
}

// both runs a golden check in both element types.
func both(t *testing.T, f64, f32 func(t *testing.T)) {
	t.Run("float64", f64)
	t.Run("float32", f32)
}
