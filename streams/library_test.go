package streams_test

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/asteria-runtime/asteria/streams"
	"github.com/asteria-runtime/asteria/streams/cudasim"
)

// upload puts numbers on the device, as float32 or float64.
func upload(t *testing.T, d *streams.Device, s *streams.Stream, x []float64, double bool) uintptr {
	var b []byte
	for _, v := range x {
		if double {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
		} else {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
		}
	}
	a := device(t, d, int64(len(b)))
	must(t, s.Upload(a, b), s.Synchronize(t.Context()))
	return a
}

func download(t *testing.T, s *streams.Stream, a uintptr, n int, double bool) []float64 {
	out := make([]float64, n)
	size := 4
	if double {
		size = 8
	}
	b := make([]byte, n*size)
	must(t, s.Download(b, a), s.Synchronize(t.Context()))
	for i := range out {
		if double {
			out[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
		} else {
			out[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
		}
	}
	return out
}

func equal(t *testing.T, what string, got, want []float64, tolerance float64) {
	t.Helper()
	for i := range want {
		if !(math.Abs(got[i]-want[i]) <= tolerance) {
			t.Errorf("%s: %v, want %v", what, got, want)
			return
		}
	}
}

// skipWithout skips where a library is not installed; the simulator has both.
func skipWithout(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, errors.ErrUnsupported) && !cudasim.Loaded() {
		t.Skip(err)
	}
	must(t, err)
}

// blas opens cuBLAS or skips; the test's cleanup closes it.
func blas(t *testing.T, s *streams.Stream) *streams.BLAS {
	b, err := s.BLAS()
	skipWithout(t, err)
	t.Cleanup(func() { must(t, b.Close()) })
	return b
}

func TestBLASMultipliesColumnMajor(t *testing.T) {
	d := cudasim.Device(t)
	s := newStream(t, d, streams.Normal)
	b := blas(t, s)
	for _, double := range []bool{false, true} {
		// A is 2×3 and B 3×2, by columns.
		a := upload(t, d, s, []float64{1, 4, 2, 5, 3, 6}, double)
		x := upload(t, d, s, []float64{1, 0, 2, 0, 1, 1}, double)
		c := upload(t, d, s, []float64{1, 1, 1, 1}, double)
		must(t, b.Gemm(&streams.Product{M: 2, N: 2, K: 3, Alpha: 2, Beta: 10, A: a, LDA: 2, B: x, LDB: 3, C: c, LDC: 2}, double))
		equal(t, "gemm", download(t, s, c, 4, double), []float64{24, 42, 20, 32}, 0)
		g := upload(t, d, s, []float64{7, 7, 7, 7}, double)
		must(t, b.Syrk(&streams.Update{Fill: streams.Lower, N: 2, K: 3, Alpha: 1, A: a, LDA: 2, C: g, LDC: 2}, double))
		equal(t, "syrk", download(t, s, g, 4, double), []float64{14, 32, 7, 77}, 0)
		err := b.Gemm(&streams.Product{M: 2, N: 2, K: 3, A: a, LDA: 1, B: x, LDB: 3, C: c, LDC: 2}, double)
		var e *streams.Error
		if !errors.As(err, &e) || e.Name != "CUBLAS_STATUS_INVALID_VALUE" {
			t.Errorf("a leading dimension that is too small: %v", err)
		}
	}
}

func TestSolverDecomposes(t *testing.T) {
	d := cudasim.Device(t)
	s := newStream(t, d, streams.Normal)
	v, err := s.Solver()
	skipWithout(t, err)
	defer func() { must(t, v.Close()) }()
	for _, double := range []bool{false, true} {
		tol := 1e-6
		if double {
			tol = 1e-14
		}
		// The upper triangle is not read.
		a, w := upload(t, d, s, []float64{2, 1, 99, 2}, double), upload(t, d, s, []float64{0, 0}, double)
		must(t, v.Eigen(2, a, 2, w, double))
		equal(t, "eigenvalues", download(t, s, w, 2, double), []float64{1, 3}, tol)
		q := download(t, s, a, 4, double)
		equal(t, "vectors", []float64{math.Abs(q[0]), q[0] * q[1], q[2] * q[3]}, []float64{math.Sqrt2 / 2, -0.5, 0.5}, tol)
		c := upload(t, d, s, []float64{4, 2, 99, 5}, double)
		must(t, v.Cholesky(streams.Lower, 2, c, 2, double))
		equal(t, "factor", download(t, s, c, 4, double), []float64{2, 1, 99, 2}, tol)
		bad := upload(t, d, s, []float64{1, 2, 0, 1}, double)
		var f *streams.FactorizationError
		if err := v.Cholesky(streams.Lower, 2, bad, 2, double); !errors.As(err, &f) || f.Info != 2 {
			t.Errorf("an indefinite matrix: %v", err)
		}
	}
}

func TestLibrariesNeedAnAccelerator(t *testing.T) {
	d := streams.Host()
	defer d.Close()
	s := newStream(t, d, streams.Normal)
	_, err1 := s.BLAS()
	_, err2 := s.Solver()
	if !errors.Is(err1, errors.ErrUnsupported) || !errors.Is(err2, errors.ErrUnsupported) {
		t.Errorf("%v, %v", err1, err2)
	}
}
