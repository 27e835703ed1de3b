package invroot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/invroot/internal/jacobi"
)

// goldenFolder is testdata/golden, or the folder that ASTERIA_GOLDEN_OPTIM names.
func goldenFolder(t *testing.T) string {
	t.Helper()
	folder := os.Getenv("ASTERIA_GOLDEN_OPTIM")
	if folder == "" {
		folder = filepath.Join("testdata", "golden")
	}
	all, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil || len(all) == 0 {
		t.Fatalf("no golden file in %s (%v)", folder, err)
	}
	return folder
}

// eachGolden runs f as one subtest per file of a family.
func eachGolden(t *testing.T, pattern string, f func(t *testing.T, path string)) {
	folder := goldenFolder(t)
	files, err := filepath.Glob(filepath.Join(folder, pattern))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Skipf("%s has no file %s", folder, pattern)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".json"), func(t *testing.T) { f(t, path) })
	}
}

func readJSON(t *testing.T, path string, v any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// invrootFile is a file invroot_*.json.
type invrootFile struct {
	Kind         string    `json:"kind"`
	N            int       `json:"n"`
	Epsilon      float64   `json:"epsilon"`
	Definition   string    `json:"definition"`
	Float32Exact bool      `json:"A_is_exact_in_float32"`
	A            []float64 `json:"A_packed_upper"`
	Eigenvalues  []float64 `json:"eigenvalues_of_A_plus_total_shift"`
	Condition    float64   `json:"condition_number"`
	Tolerance    struct {
		RelFrobenius float64 `json:"rel_frobenius_float64"`
	} `json:"tolerance"`
	Cases []struct {
		P float64   `json:"p"`
		X []float64 `json:"X_packed_upper"`
	} `json:"cases"`
}

// unpack expands a packed upper triangle, row-major.
func unpack[T gemm.Float](t *testing.T, n int, packed []float64) gemm.Matrix[T] {
	t.Helper()
	if len(packed) != n*(n+1)/2 {
		t.Fatalf("packed triangle of order %d has %d elements", n, len(packed))
	}
	m := gemm.NewMatrix[T](n, n)
	k := 0
	for i := range n {
		for j := i; j < n; j++ {
			m.Set(i, j, T(packed[k]))
			m.Set(j, i, T(packed[k]))
			k++
		}
	}
	return m
}

// relFrobenius returns ‖got-want‖_F/‖want‖_F.
func relFrobenius[T, U gemm.Float](got gemm.Matrix[T], want gemm.Matrix[U]) float64 {
	diff, norm := 0.0, 0.0
	for i := range want.Rows {
		for j := range want.Cols {
			w := float64(want.At(i, j))
			d := float64(got.At(i, j)) - w
			diff += d * d
			norm += w * w
		}
	}
	return math.Sqrt(diff / norm)
}

func newTestSolver[T gemm.Float](t testing.TB, n int, opts Options) *Solver[T] {
	t.Helper()
	eng := gemm.New(1)
	s, err := NewSolver[T](eng, n, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(); eng.Close() })
	return s
}

func TestGoldenInverseRoots(t *testing.T) {
	eachGolden(t, "invroot_*.json", func(t *testing.T, path string) {
		var f invrootFile
		readJSON(t, path, &f)
		t.Run("float64", func(t *testing.T) { goldenRoots[float64](t, f) })
		t.Run("float32", func(t *testing.T) { goldenRoots[float32](t, f) })
	})
}

func goldenRoots[T gemm.Float](t *testing.T, f invrootFile) {
	opts := Options{Ridge: Ridge{Kind: Absolute, Value: f.Epsilon}}
	s := newTestSolver[T](t, f.N, opts)
	a, x := unpack[T](t, f.N, f.A), gemm.NewMatrix[T](f.N, f.N)
	for _, c := range f.Cases {
		tol := f.Tolerance.RelFrobenius
		if unit[T]() > 0x1p-30 {
			if f.Condition*unit[T]() > 0.1 && !f.Float32Exact {
				t.Skipf("condition %.1e: rounding A to float32 alone changes the result by %.0f%%", f.Condition, 100*f.Condition*unit[T]())
			}
			// Storage of A perturbs λmin by u*κ relatively when A is not exact;
			// the work itself is Auto, in float32 only up to κ = 1e4,
			// 10*n*u*κ/p as the file's float64 rule has it.
			work := min(f.Condition, singleLimit)
			if !f.Float32Exact {
				work = f.Condition
			}
			tol = 10*float64(f.N)*unit[T]()*work/c.P + f.Tolerance.RelFrobenius
		}
		rep, err := s.InversePower(context.Background(), x, a, 1/c.P)
		if err != nil {
			t.Fatalf("p=%v: %v", c.P, err)
		}
		got := relFrobenius(x, unpack[float64](t, f.N, c.X))
		if !(got <= tol) {
			t.Errorf("p=%v: relative error %.2e exceeds %.2e (%+v)", c.P, got, tol, rep)
		}
		if k := rep.Condition; unit[T]() < 0x1p-30 && math.Abs(k/f.Condition-1) > 1e-3 {
			t.Errorf("p=%v: reported condition %.6e, file says %.6e", c.P, k, f.Condition)
		}
	}
}

// coupledFile is a file coupled_*.json.
type coupledFile struct {
	Tolerance struct {
		RelMax float64 `json:"rel_max"`
	} `json:"tolerance"`
	Cases []struct {
		MatrixFile string `json:"matrix_file"`
		P          int    `json:"p"`
		Newton     *struct {
			Tolerance  float64   `json:"tolerance"`
			Iterations int       `json:"iterations"`
			Final      float64   `json:"final_max_abs_M_minus_I"`
			X          []float64 `json:"X_packed_upper"`
		} `json:"newton"`
		Order3 *struct {
			Tolerance  float64 `json:"tolerance"`
			Iterations int     `json:"iterations_independent"`
		} `json:"order3"`
	} `json:"cases"`
}

func TestGoldenCoupledIterations(t *testing.T) {
	eachGolden(t, "coupled_*.json", func(t *testing.T, path string) {
		var f coupledFile
		readJSON(t, path, &f)
		for _, c := range f.Cases {
			var m invrootFile
			readJSON(t, filepath.Join(filepath.Dir(path), c.MatrixFile), &m)
			name := fmt.Sprintf("%s/p=%d", strings.TrimSuffix(c.MatrixFile, ".json"), c.P)
			a := unpack[float64](t, m.N, m.A)
			x := gemm.NewMatrix[float64](m.N, m.N)
			opts := Options{Ridge: Ridge{Kind: Absolute, Value: m.Epsilon}, RidgeRetries: -1}
			if c.Newton != nil {
				t.Run(name+"/newton", func(t *testing.T) {
					opts.Method, opts.Tolerance = CoupledNewton, c.Newton.Tolerance
					rep, err := newTestSolver[float64](t, m.N, opts).InverseRoot(context.Background(), x, a, c.P)
					if err != nil {
						t.Fatal(err)
					}
					if rep.Iterations != c.Newton.Iterations {
						t.Errorf("%d iterations, want %d", rep.Iterations, c.Newton.Iterations)
					}
					want := unpack[float64](t, m.N, c.Newton.X)
					if got := relMax(x, want); !(got <= f.Tolerance.RelMax) {
						t.Errorf("relative difference %.2e exceeds %.0e", got, f.Tolerance.RelMax)
					}
				})
			}
			if c.Newton != nil {
				t.Run(name+"/newton/float32", func(t *testing.T) {
					// u*κ/p from rounding, 10*n of it as in the other files;
					// the file's own X has an error of the order of its
					// tolerance.
					tol := 10*float64(m.N)*0x1p-24*m.Condition/float64(c.P) + 10*c.Newton.Tolerance
					if tol > 0.5 || !m.Float32Exact {
						t.Skipf("condition %.1e: float32 leaves no digit", m.Condition)
					}
					opts := opts
					opts.Method, opts.Tolerance, opts.Precision = CoupledNewton, c.Newton.Tolerance, Single
					x := gemm.NewMatrix[float32](m.N, m.N)
					if _, err := newTestSolver[float32](t, m.N, opts).InverseRoot(context.Background(), x, cast[float32](a, 1), c.P); err != nil {
						t.Fatal(err)
					}
					if got := relMax(x, unpack[float64](t, m.N, c.Newton.X)); !(got <= tol) {
						t.Errorf("relative difference %.2e exceeds %.2e", got, tol)
					}
				})
			}
			if c.Order3 != nil {
				t.Run(name+"/order3", func(t *testing.T) {
					opts.Method, opts.Tolerance = HigherOrder, c.Order3.Tolerance
					rep, err := newTestSolver[float64](t, m.N, opts).InverseRoot(context.Background(), x, a, c.P)
					if err != nil {
						t.Fatal(err)
					}
					checkStagnation(t, opts, a, c.P, rep.Iterations, c.Order3.Iterations)
					for _, k := range m.Cases {
						if k.P == float64(c.P) {
							want := unpack[float64](t, m.N, k.X)
							if got := relFrobenius(x, want); !(got <= m.Tolerance.RelFrobenius) {
								t.Errorf("relative error %.2e exceeds %.2e", got, m.Tolerance.RelFrobenius)
							}
						}
					}
				})
			}
		}
	})
}

// checkStagnation compares iteration counts of a method that runs until
// rounding stops it. The steps to an error of 8*n*u are the algorithm's and
// common to all; the few after them depend on how each implementation's
// products round.
func checkStagnation(t *testing.T, opts Options, a gemm.Matrix[float64], p, got, want int) {
	t.Helper()
	const tail = 8
	opts.Tolerance = 8 * float64(a.Rows) * 0x1p-53
	x := gemm.NewMatrix[float64](a.Rows, a.Rows)
	rep, err := newTestSolver[float64](t, a.Rows, opts).InverseRoot(context.Background(), x, a, p)
	if err != nil {
		t.Fatal(err)
	}
	for who, n := range map[string]int{"our": got, "the file's": want} {
		if n < rep.Iterations || n > rep.Iterations+tail {
			t.Errorf("%s %d iterations, want %d to rounding level and at most %d more", who, n, rep.Iterations, tail)
		}
	}
}

// relMax returns max|got-want|/max|want|.
func relMax[T, U gemm.Float](got gemm.Matrix[T], want gemm.Matrix[U]) float64 {
	diff, norm := 0.0, 0.0
	for i := range want.Rows {
		for j := range want.Cols {
			w := float64(want.At(i, j))
			d := math.Abs(float64(got.At(i, j)) - w)
			if !(d <= diff) {
				diff = d
			}
			norm = max(norm, math.Abs(w))
		}
	}
	return diff / norm
}

// refreshFile is a file refresh_*.json.
type refreshFile struct {
	Tolerance struct {
		MaxAbs float64 `json:"float64_max_abs"`
	} `json:"tolerance"`
	Soap []struct {
		Name     string      `json:"name"`
		Rows     int         `json:"rows"`
		Cols     int         `json:"cols"`
		M        []float64   `json:"exp_avg_in_old_eigenbasis"`
		V        []float64   `json:"exp_avg_sq_in_old_eigenbasis"`
		GG       [][]float64 `json:"GG"`
		Q        [][]float64 `json:"Q_old"`
		Expected struct {
			Index [][]int     `json:"sort_index_per_factor"`
			Q     [][]float64 `json:"Q_new_up_to_column_sign"`
			M     []float64   `json:"exp_avg_in_new_eigenbasis_up_to_row_column_sign"`
			V     []float64   `json:"exp_avg_sq_permuted"`
		} `json:"expected"`
	} `json:"soap"`
	Facebook []struct {
		N             int       `json:"n"`
		A             []float64 `json:"A"`
		Q0            []float64 `json:"Q0"`
		Epsilon       float64   `json:"epsilon"`
		MaxIterations int       `json:"max_iterations"`
		Tolerance     float64   `json:"tolerance"`
		Used          *int      `json:"iterations_used"`
		Values        []float64 `json:"eigenvalues_ascending"`
		Vectors       []float64 `json:"eigenvectors_up_to_column_sign"`
	} `json:"facebook_qr_algorithm"`
}

func TestGoldenRefreshJobs(t *testing.T) {
	eachGolden(t, "refresh_*.json", func(t *testing.T, path string) {
		var f refreshFile
		readJSON(t, path, &f)
		t.Run("float64", func(t *testing.T) { goldenRefresh[float64](t, f) })
		t.Run("float32", func(t *testing.T) { goldenRefresh[float32](t, f) })
	})
}

// refreshTolerance is the file's in float64. In float32 the storage of A alone
// moves the result of one QR step, or of a few, by u*κ(A); 10*n of that is the
// rule of the other files.
func refreshTolerance[T gemm.Float](t *testing.T, f refreshFile, n int, a []float64) float64 {
	if unit[T]() < 0x1p-30 {
		return f.Tolerance.MaxAbs
	}
	w, _ := jacobi.Eigen(gemm.MatrixOf(n, n, a))
	tol := 10 * float64(n) * unit[T]() * w[n-1] / w[0]
	if !(tol > 0 && tol < 0.5) {
		t.Skipf("eigenvalues from %.1e to %.1e: float32 storage of the factor leaves no digit", w[0], w[n-1])
	}
	return tol
}

func goldenRefresh[T gemm.Float](t *testing.T, f refreshFile) {
	for _, c := range f.Soap {
		for k, gg := range c.GG {
			t.Run(fmt.Sprintf("%s/factor=%d", c.Name, k), func(t *testing.T) {
				n := len(c.Expected.Index[k])
				tol := refreshTolerance[T](t, f, n, gg)
				s := newTestSolver[T](t, n, Options{})
				q, perm := fill[T](n, n, c.Q[k]), make([]int, n)
				if _, err := s.RefreshBasis(context.Background(), q, fill[T](n, n, gg), perm); err != nil {
					t.Fatal(err)
				}
				if fmt.Sprint(perm) != fmt.Sprint(c.Expected.Index[k]) {
					t.Fatalf("order %v, want %v", perm, c.Expected.Index[k])
				}
				compareColumns(t, q, fill[float64](n, n, c.Expected.Q[k]), tol)
			})
		}
	}
	for i, c := range f.Facebook {
		t.Run(fmt.Sprintf("facebook/%d", i), func(t *testing.T) {
			tol := refreshTolerance[T](t, f, c.N, c.A)
			s := newTestSolver[T](t, c.N, Options{})
			a, q, w := fill[T](c.N, c.N, c.A), fill[T](c.N, c.N, c.Q0), make([]T, c.N)
			for i := range c.N {
				a.Set(i, i, a.At(i, i)+T(c.Epsilon))
			}
			rep, err := s.Diagonalize(context.Background(), q, w, a, c.MaxIterations, c.Tolerance)
			if err != nil {
				t.Fatal(err)
			}
			if c.Used != nil && rep.Iterations != *c.Used {
				t.Errorf("%d iterations, want %d", rep.Iterations, *c.Used)
			}
			for j, v := range c.Values {
				if d := math.Abs(float64(w[j]) - v); !(d <= tol) {
					t.Errorf("eigenvalue %d: %v, want %v", j, w[j], v)
				}
			}
			compareColumns(t, q, fill[float64](c.N, c.N, c.Vectors), tol)
		})
	}
}

// TestGoldenRefreshMovesTheMoments applies what a refresh returns to an
// optimizer's state: the second moment follows the permutations, the first is
// rotated from the old bases into the new.
func TestGoldenRefreshMovesTheMoments(t *testing.T) {
	eachGolden(t, "refresh_*.json", func(t *testing.T, path string) {
		var f refreshFile
		readJSON(t, path, &f)
		for _, c := range f.Soap {
			if len(c.GG) != 2 || len(c.M) == 0 {
				continue
			}
			t.Run(c.Name, func(t *testing.T) {
				sizes := []int{c.Rows, c.Cols}
				var old, q [2]gemm.Matrix[float64]
				var perm [2][]int
				for k, n := range sizes {
					old[k], q[k], perm[k] = fill[float64](n, n, c.Q[k]), fill[float64](n, n, c.Q[k]), make([]int, n)
					s := newTestSolver[float64](t, n, Options{})
					if _, err := s.RefreshBasis(context.Background(), q[k], fill[float64](n, n, c.GG[k]), perm[k]); err != nil {
						t.Fatal(err)
					}
				}
				turn := [2]gemm.Matrix[float64]{mulT(true, q[0], false, old[0]), mulT(true, q[1], false, old[1])}
				m := mulT(false, mulT(false, turn[0], false, fill[float64](c.Rows, c.Cols, c.M)), true, turn[1])
				for i := range c.Rows {
					for j := range c.Cols {
						at := i*c.Cols + j
						if got := c.V[perm[0][i]*c.Cols+perm[1][j]]; got != c.Expected.V[at] {
							t.Errorf("second moment (%d,%d): %v, want %v", i, j, got, c.Expected.V[at])
						}
						if d := math.Abs(math.Abs(m.At(i, j)) - math.Abs(c.Expected.M[at])); !(d <= f.Tolerance.MaxAbs) {
							t.Errorf("first moment (%d,%d): %v, want %v up to sign", i, j, m.At(i, j), c.Expected.M[at])
						}
					}
				}
			})
		}
	})
}

func fill[T gemm.Float](rows, cols int, data []float64) gemm.Matrix[T] {
	m := gemm.NewMatrix[T](rows, cols)
	for i, v := range data {
		m.Data[i] = T(v)
	}
	return m
}

// compareColumns compares up to the sign of each column.
func compareColumns[T gemm.Float](t *testing.T, got gemm.Matrix[T], want gemm.Matrix[float64], tol float64) {
	t.Helper()
	for j := range want.Cols {
		dot := 0.0
		for i := range want.Rows {
			dot += float64(got.At(i, j)) * want.At(i, j)
		}
		sign := math.Copysign(1, dot)
		for i := range want.Rows {
			if d := math.Abs(sign*float64(got.At(i, j)) - want.At(i, j)); !(d <= tol) {
				t.Errorf("element (%d,%d): %v, want %v up to sign, tolerance %.0e", i, j, got.At(i, j), want.At(i, j), tol)
			}
		}
	}
}

// orthogonalizationFile is a file orthogonalization*.json. Cases name their
// iterations in the key.
type orthogonalizationFile struct {
	Coefficients map[string]json.RawMessage `json:"polar_express_coefficients"`
	Tolerance    struct {
		Float64 float64 `json:"float64_max_abs"`
		Float32 float64 `json:"float32_max_abs"`
	} `json:"tolerance"`
	Cases []map[string]json.RawMessage `json:"cases"`
}

func TestGoldenOrthogonalization(t *testing.T) {
	eachGolden(t, "orthogonalization*.json", func(t *testing.T, path string) {
		var f orthogonalizationFile
		readJSON(t, path, &f)
		t.Run("coefficients", func(t *testing.T) { goldenCoefficients(t, f) })
		for i, c := range f.Cases {
			t.Run(fmt.Sprintf("case=%d/float64", i), func(t *testing.T) { goldenPolar[float64](t, c, f.Tolerance.Float64) })
			t.Run(fmt.Sprintf("case=%d/float32", i), func(t *testing.T) { goldenPolar[float32](t, c, f.Tolerance.Float32) })
		}
	})
}

var (
	plainKey  = regexp.MustCompile(`^plain_l(.+)$`)
	cushioned = regexp.MustCompile(`^cushioned_\d+$`)
	stepsKey  = regexp.MustCompile(`_ns\d*_([^_]+)_([^_]+)_([^_]+)_(\d+)steps$`)
)

func goldenCoefficients(t *testing.T, f orthogonalizationFile) {
	var lower, cushion float64
	decode(t, f.Coefficients["l"], &lower)
	decode(t, f.Coefficients["cushion"], &cushion)
	for key, raw := range f.Coefficients {
		l, c := lower, cushion
		if m := plainKey.FindStringSubmatch(key); m != nil {
			v, err := strconv.ParseFloat(m[1], 64)
			if err != nil {
				t.Fatalf("%s: %v", key, err)
			}
			l, c = v, 0
		} else if !cushioned.MatchString(key) {
			continue
		}
		var want [][3]float64
		decode(t, raw, &want)
		got, err := PolarExpress(l, len(want), c)
		if err != nil {
			t.Fatal(err)
		}
		for i, w := range want {
			// The coefficients follow from a Remez exchange that stops at 1e-15
			// in its error e; near l = u the system's condition takes eight
			// digits of them.
			for j, g := range [3]float64{got[i].A, got[i].B, got[i].C} {
				if math.Abs(g-w[j]) > 1e-7*math.Abs(w[j]) {
					t.Errorf("%s step %d coefficient %d: %v, want %v", key, i, j, g, w[j])
				}
			}
		}
	}
}

func decode(t *testing.T, raw json.RawMessage, v any) {
	t.Helper()
	if len(raw) == 0 {
		return
	}
	if err := json.Unmarshal(raw, v); err != nil {
		t.Fatal(err)
	}
}

func goldenPolar[T gemm.Float](t *testing.T, c map[string]json.RawMessage, tol float64) {
	var rows, cols int
	decode(t, c["rows"], &rows)
	decode(t, c["cols"], &cols)
	var g []float64
	decode(t, c["G"], &g)
	s := newTestSolver[T](t, max(rows, cols), Options{})
	in, out := fill[T](rows, cols, g), gemm.NewMatrix[T](rows, cols)
	for key, raw := range c {
		m := stepsKey.FindStringSubmatch(key)
		if m == nil && key != "polar_factor_UVt" {
			continue
		}
		var want []float64
		decode(t, raw, &want)
		var err error
		if m == nil {
			_, err = s.Polar(context.Background(), out, in)
		} else {
			_, err = s.Orthogonalize(context.Background(), out, in, stepsOf(t, m[1:]))
		}
		if err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		for i, w := range want {
			if d := math.Abs(float64(out.Data[i]) - w); !(d <= tol) {
				t.Errorf("%s element %d: %v, want %v", key, i, out.Data[i], w)
			}
		}
	}
}

// stepsOf reads three coefficients, integers or fractions among them, and a count.
func stepsOf(t *testing.T, m []string) []Polynomial {
	t.Helper()
	var c [3]float64
	for i := range c {
		num, den, _ := strings.Cut(m[i], "/")
		a, err := strconv.ParseFloat(num, 64)
		b := 1.0
		if den != "" {
			var e error
			b, e = strconv.ParseFloat(den, 64)
			err = errors.Join(err, e)
		}
		if err != nil {
			t.Fatal(err)
		}
		c[i] = a / b
	}
	n, err := strconv.Atoi(m[3])
	if err != nil {
		t.Fatal(err)
	}
	steps := make([]Polynomial, n)
	for i := range steps {
		steps[i] = Polynomial{c[0], c[1], c[2]}
	}
	return steps
}
