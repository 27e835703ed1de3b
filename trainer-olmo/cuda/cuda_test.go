package cuda_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/invroot"
	"github.com/asteria-runtime/asteria/invroot/invroottest"
	"github.com/asteria-runtime/asteria/kron"
	"github.com/asteria-runtime/asteria/kron/krontest"
	"github.com/asteria-runtime/asteria/streams/cudasim"
	"github.com/asteria-runtime/asteria/trainer-olmo/cuda"
	"github.com/asteria-runtime/asteria/uvm"
)

// newContext opens the device with our own kernels or with the libraries.
func newContext(t testing.TB, own bool) *cuda.Context {
	t.Helper()
	c, err := cuda.New(cudasim.Device(t), cuda.Options{OwnKernels: own, MinOrder: 1, StagingBytes: 1 << 14})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newOps[T gemm.Float](t testing.TB, c *cuda.Context) *cuda.Ops[T] {
	t.Helper()
	o, err := cuda.NewOps[T](c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return o
}

func newRefresher[T gemm.Float](t testing.TB, c *cuda.Context, order int, o invroot.Options) *cuda.Refresher[T] {
	t.Helper()
	eng := gemm.New(1)
	host, err := invroot.NewSolver[T](eng, order, o)
	if err != nil {
		t.Fatal(err)
	}
	r, err := cuda.NewRefresher(c, order, host, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		host.Close()
		eng.Close()
	})
	return r
}

// both runs f with our kernels and with the libraries.
func both(t *testing.T, f func(t *testing.T, own bool)) {
	for _, own := range []bool{true, false} {
		t.Run(fmt.Sprintf("own kernels %v", own), func(t *testing.T) { f(t, own) })
	}
}

func TestRefresherConformance(t *testing.T) {
	both(t, func(t *testing.T, own bool) {
		t.Run("float32", func(t *testing.T) { conform[float32](t, own) })
		t.Run("float64", func(t *testing.T) { conform[float64](t, own) })
	})
}

func conform[T gemm.Float](t *testing.T, own bool) {
	c := newContext(t, own)
	var used cuda.Stats
	invroottest.Run(t, func(t *testing.T, maxOrder int) invroottest.Backend[T] {
		r := newRefresher[T](t, c, maxOrder, invroot.Options{})
		t.Cleanup(func() {
			used.Device += r.Stats().Device
			used.Host += r.Stats().Host
		})
		return r
	})
	if used.Device < 20 {
		t.Errorf("%+v: the device was hardly used", used)
	}
}

// A root by cuSOLVER is the host solver's in float64, in the precision that the
// options ask for, whatever the ridge means: also of a factor of half rank, which Auto
// does in double precision.
func TestARootByEigenvaluesIsTheHosts(t *testing.T) {
	c := newContext(t, false)
	for _, n := range []int{1, 9, 48} {
		for _, rank := range []int{2 * n, (n + 1) / 2} {
			for _, o := range []invroot.Options{
				{}, {Ridge: invroot.Ridge{Kind: invroot.Absolute, Value: 1e-3}}, {Precision: invroot.Double}, {Precision: invroot.Single, Ridge: invroot.Ridge{Value: 1e-2}},
			} {
				a := gram(n, rank)
				r := newRefresher[float32](t, c, n, o)
				host, err := invroot.NewSolver[float64](engine(t), n, o)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(host.Close)
				for _, exponent := range []float64{0.25, 0.5, 0.3} {
					got, want, wide := gemm.NewMatrix[float32](n, n), gemm.NewMatrix[float64](n, n), gemm.NewMatrix[float64](n, n)
					for i, v := range a.Data {
						wide.Data[i] = float64(v)
					}
					if _, err := host.InversePower(t.Context(), want, wide, exponent); err != nil {
						t.Fatal(err)
					}
					if err := r.Root(t.Context(), got, a, exponent); err != nil {
						t.Fatal(err)
					}
					off, norm := 0.0, 0.0
					for i, v := range want.Data {
						off, norm = off+(v-float64(got.Data[i]))*(v-float64(got.Data[i])), norm+v*v
					}
					// Auto's promise is 1e-4; storage in float32 moves what the ridge holds up.
					if !(off <= 1e-8*norm) || r.Report().Method != invroot.Eigen {
						t.Errorf("n=%d rank %d %+v exponent %v: off by %.2g, %+v", n, rank, o, exponent, math.Sqrt(off/norm), r.Report())
					}
					if full := rank >= n; o.Precision == invroot.Auto && o.Ridge == (invroot.Ridge{}) && n > 9 && !full && r.Report().Precision != invroot.Double {
						t.Errorf("n=%d rank %d: Auto stayed in single precision: %+v", n, rank, r.Report())
					}
				}
				if r.Stats().Host != 0 {
					t.Errorf("n=%d rank %d %+v: %+v", n, rank, o, r.Stats())
				}
			}
		}
	}
}

// gram is XᵀX/rank for a random rank×n X.
func gram(n, rank int) gemm.Matrix[float32] {
	g := rand.New(rand.NewPCG(uint64(n), uint64(rank)))
	x, a := gemm.NewMatrix[float64](rank, n), gemm.NewMatrix[float32](n, n)
	for i := range x.Data {
		x.Data[i] = g.NormFloat64()
	}
	for i := range n {
		for j := range n {
			sum := 0.0
			for k := range rank {
				sum += x.At(k, i) * x.At(k, j)
			}
			a.Set(i, j, float32(sum/float64(rank)))
		}
	}
	return a
}

func engine(t *testing.T) *gemm.Engine {
	eng := gemm.New(1)
	t.Cleanup(eng.Close)
	return eng
}

// A step's launches do not grow with the rows of a block.
func TestRowsAreWhitenedTogether(t *testing.T) {
	if !cudasim.Loaded() {
		t.Skip("counts launches of the simulated driver")
	}
	o := newOps[float32](t, newContext(t, true))
	const rows, n = 50, 8
	x, s, v := make([]float32, rows*n), make([]float32, rows), make([]float32, n)
	before := cudasim.Count("launches")
	o.WhitenRows(x, x, s, v, 1)
	if err := o.Sync(); err != nil || cudasim.Count("launches")-before != 1 {
		t.Errorf("%v, %d launches", err, cudasim.Count("launches")-before)
	}
}

// Golden trajectories with operations and refreshes on the device.
func TestGolden(t *testing.T) {
	both(t, func(t *testing.T, own bool) {
		c := newContext(t, own)
		solvers := krontest.Solvers{
			Float64: func(testing.TB, float64, int) kron.Refresher[float64] { return nil },
			Float32: func(testing.TB, float64, int) kron.Refresher[float32] { return nil },
			Ops64:   func(t testing.TB) kron.Ops[float64] { return newOps[float64](t, c) },
			Ops32:   func(t testing.TB) kron.Ops[float32] { return newOps[float32](t, c) },
		}
		solvers.Float64 = func(t testing.TB, ridge float64, order int) kron.Refresher[float64] {
			return krontest.Reference[float64]{Ridge: ridge}
		}
		solvers.Float32 = func(t testing.TB, ridge float64, order int) kron.Refresher[float32] {
			return krontest.Reference[float32]{Ridge: ridge}
		}
		for _, pattern := range krontest.Families {
			t.Run(pattern, func(t *testing.T) { krontest.Run(t, krontest.Dir("../asteria/testdata/golden"), pattern, solvers) })
		}
	})
}

// Every operation against the host's, at sizes around what a block of threads does.
func TestOpsEqualTheHosts(t *testing.T) {
	both(t, func(t *testing.T, own bool) {
		for _, kind := range []string{"discrete", "basic", "coherent"} {
			t.Run(kind, func(t *testing.T) {
				if kind != "discrete" || cudasim.Loaded() {
					cudasim.Configure(t, "CUDASIM_KIND="+kind)
				}
				c := newContext(t, own)
				compareOps[float32](t, c, 1e-5)
				compareOps[float64](t, c, 1e-13)
			})
		}
	})
}

// buffers is memory for two equal sets of operands.
type buffers[T gemm.Float] struct {
	host, device []T
}

// compareOps plays one random program of operations on the host and on the device,
// in memory that the device addresses and in plain Go memory, in turn.
func compareOps[T gemm.Float](t *testing.T, c *cuda.Context, tol float64) {
	eng := gemm.New(1)
	defer eng.Close()
	host, dev := kron.NewCPU[T](eng), newOps[T](t, c)
	for _, n := range []int{1, 5, 33, 70} {
		g := rand.New(rand.NewPCG(uint64(n), 1))
		mem, err := c.Alloc(int64(8 * n * n))
		if err != nil {
			t.Fatal(err)
		}
		var b [4]buffers[T]
		for i := range b {
			b[i] = buffers[T]{make([]T, n*n), make([]T, n*n)}
			if i == 0 {
				b[i].device = elements[T](mem)[:n*n]
			}
			for j := range b[i].host {
				v := T(g.NormFloat64())
				b[i].host[j], b[i].device[j] = v, v
			}
		}
		for step := range 60 {
			x, y, z := g.IntN(4), g.IntN(4), g.IntN(4)
			name := operate(host, dev, &b, x, y, z, n, g)
			if step%7 == 0 || g.IntN(5) == 0 {
				compare(t, dev, &b, fmt.Sprintf("n=%d step %d %s", n, step, name), tol)
			}
		}
		compare(t, dev, &b, fmt.Sprintf("n=%d", n), tol)
		if err := mem.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func elements[T gemm.Float](b *uvm.Buffer) []T {
	switch v := any(b.Float32s()).(type) {
	case []T:
		return v
	}
	return any(b.Float64s()).([]T)
}

func compare[T gemm.Float](t *testing.T, dev *cuda.Ops[T], b *[4]buffers[T], at string, tol float64) {
	t.Helper()
	if err := dev.Sync(); err != nil {
		t.Fatalf("%s: %v", at, err)
	}
	for i := range b {
		top := 1.0
		for _, v := range b[i].host {
			top = max(top, math.Abs(float64(v)))
		}
		for j, v := range b[i].host {
			if d := math.Abs(float64(v) - float64(b[i].device[j])); !(d <= tol*top) {
				t.Fatalf("%s: buffer %d element %d: %v on the device, %v on the host", at, i, j, b[i].device[j], v)
			}
		}
		// Rounding must not add up over the program.
		copy(b[i].device, b[i].host)
		if top > 1e3 {
			for j := range b[i].host {
				b[i].host[j] /= T(top)
				b[i].device[j] = b[i].host[j]
			}
		}
	}
}

// operate runs one operation on both sides and returns its name. x, y, z choose
// buffers; those that are written differ from those that are read.
//
//lint:long
func operate[T gemm.Float](host, dev kron.Ops[T], b *[4]buffers[T], x, y, z, n int, g *rand.Rand) string {
	if y == x {
		y = (x + 1) % 4
	}
	for z == x || z == y {
		z = (z + 1) % 4
	}
	each := func(f func(o kron.Ops[T], at func(i int) []T)) {
		f(host, func(i int) []T { return b[i].host })
		f(dev, func(i int) []T { return b[i].device })
	}
	alpha, beta := T(g.NormFloat64()), T(g.NormFloat64())
	square := func(m []T) gemm.Matrix[T] { return gemm.MatrixOf(n, n, m) }
	inner := func(m []T) gemm.Matrix[T] { return square(m).Slice(n/3, n/4, n-n/3, n-n/4) }
	switch op := g.IntN(13); op {
	case 0:
		ta, tb := g.IntN(2) == 0, g.IntN(2) == 0
		each(func(o kron.Ops[T], at func(int) []T) {
			o.Gemm(ta, tb, alpha/T(n), square(at(x)), square(at(y)), 0, square(at(z)))
		})
		return "gemm"
	case 1:
		trans := g.IntN(2) == 0
		each(func(o kron.Ops[T], at func(int) []T) { o.Syrk(trans, alpha/T(n), square(at(x)), beta, square(at(z))) })
		return "syrk"
	case 2:
		each(func(o kron.Ops[T], at func(int) []T) {
			o.Gemm(false, true, alpha/T(n), inner(at(x)), inner(at(y)), beta, square(at(z)).Slice(0, n/3, n-n/3, n-n/3))
		})
		return "gemm of views"
	case 3:
		each(func(o kron.Ops[T], at func(int) []T) { o.Axpby(alpha, at(x), beta, at(z)) })
		return "axpby"
	case 4:
		each(func(o kron.Ops[T], at func(int) []T) {
			o.Lerp(at(z)[n/2:], at(x)[n/2:], 0.25)
			o.Scale(alpha, at(z)[:n])
		})
		return "lerp, scale"
	case 5:
		each(func(o kron.Ops[T], at func(int) []T) { o.LerpSquare(at(z), at(x), 0.25) })
		return "lerp square"
	case 6:
		each(func(o kron.Ops[T], at func(int) []T) {
			o.Copy(at(y), at(x))
			o.LerpSquare(at(y), at(x), 1) // squares
			o.AdamDirection(at(z), at(x), at(y), 0.5, 2, 0.1)
		})
		return "adam direction"
	case 7:
		each(func(o kron.Ops[T], at func(int) []T) { o.ScaleMode(at(z), 1, n, at(x)[:n]) })
		return "scale mode"
	case 8:
		perm := g.Perm(n)
		each(func(o kron.Ops[T], at func(int) []T) { o.PermuteMode(at(z), at(x), n, 1, perm) })
		return "permute columns"
	case 9:
		perm := g.Perm(n)
		each(func(o kron.Ops[T], at func(int) []T) { o.PermuteMode(at(z), at(x), 1, n, perm) })
		return "permute rows"
	case 12:
		each(func(o kron.Ops[T], at func(int) []T) {
			o.Copy(at(y), at(x))
			o.LerpSquare(at(y), at(x), 1) // squares
			o.WhitenRows(at(z), at(x), at(y)[n*n-n:], at(y)[:n], 0.1)
		})
		return "whiten rows"
	case 10:
		each(func(o kron.Ops[T], at func(int) []T) {
			tmp := make([]T, n*n)
			o.SquaresMode(at(z)[:n], at(x), at(y)[:1], at(y)[n*n-n:], tmp)
		})
		return "squares mode"
	default:
		var sums [2]float64
		i := 0
		each(func(o kron.Ops[T], at func(int) []T) { sums[i] = o.SumSquares(at(x)); i++ })
		if math.Abs(sums[0]-sums[1]) > 1e-5*sums[0] {
			b[x].device[0] = T(math.NaN()) // compare reports it
		}
		return "sum of squares"
	}
}

func TestARefreshFallsBackWhereTheFactorIsSingular(t *testing.T) {
	c := newContext(t, true)
	const n = 24
	r := newRefresher[float32](t, c, n, invroot.Options{})
	a, q := gemm.NewMatrix[float32](n, n), gemm.NewMatrix[float32](n, n)
	for i := range n {
		q.Set(i, i, 1)
		for j := range n {
			a.Set(i, j, float32((i+1)*(j+1))) // rank one
		}
	}
	if err := r.Iterate(t.Context(), q, a, nil); err != nil || r.Stats().Host != 1 {
		t.Fatalf("%v, %+v", err, r.Stats())
	}
	for i := range n {
		for j := range n {
			dot := 0.0
			for k := range n {
				dot += float64(q.At(k, i)) * float64(q.At(k, j))
			}
			if i == j {
				dot--
			}
			if math.Abs(dot) > 1e-5 {
				t.Fatalf("columns %d and %d: %v", i, j, dot)
			}
		}
	}
}

// Which memory the device wants, by its architecture, with the real driver's calls.
func TestMemoryFollowsTheArchitecture(t *testing.T) {
	for kind, want := range map[string]uvm.Access{"discrete": uvm.Migrating, "basic": uvm.Staged, "integrated": uvm.Direct, "coherent": uvm.Direct} {
		t.Run(kind, func(t *testing.T) {
			cudasim.Configure(t, "CUDASIM_KIND="+kind)
			c := newContext(t, true)
			b, err := c.Alloc(1 << 16)
			if err != nil {
				t.Fatal(err)
			}
			s, err := c.Device().NewStream(0)
			if err != nil {
				t.Fatal(err)
			}
			err = errors.Join(b.MoveTo(true, s.Handle()), b.Place(uvm.PreferDevice), b.MoveTo(false, s.Handle()), s.Synchronize(t.Context()))
			if err != nil || c.Access() != want || b.Shared() == (want == uvm.Staged) {
				t.Errorf("%v: access %v, shared %v", err, c.Access(), b.Shared())
			}
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestManagedMemoryIsBoundedByTheDevice(t *testing.T) {
	cudasim.Configure(t, "CUDASIM_MEMORY=4194304")
	c := newContext(t, true)
	b, err := c.Alloc(3 << 20)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Alloc(1 << 20); !errors.Is(err, uvm.ErrLimit) {
		t.Errorf("more managed memory than the device has: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

// A failed kernel, and a device without room, are loud at the next Sync and stay.
func TestAFailureStays(t *testing.T) {
	cudasim.Configure(t, "CUDASIM_MEMORY=65536")
	c := newContext(t, true)
	o, err := cuda.NewOps[float32](c)
	if err != nil {
		t.Fatal(err)
	}
	x := make([]float32, 1<<16)
	for range 2 {
		o.Scale(2, x)
		if err := o.Sync(); err == nil {
			t.Error("a result without memory for it")
		}
	}
	if x[0] != 0 {
		t.Error("an operand was written")
	}
	if o.Close() == nil {
		t.Error("closing hides the failure")
	}
}

func TestSmallOrdersAreTheHosts(t *testing.T) {
	c, err := cuda.New(cudasim.Device(t), cuda.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := newRefresher[float32](t, c, 4, invroot.Options{})
	a, x := gemm.NewMatrix[float32](4, 4), gemm.NewMatrix[float32](4, 4)
	for i := range 4 {
		a.Set(i, i, 16)
	}
	if err := r.Root(t.Context(), x, a, 0.25); err != nil || r.Stats() != (cuda.Stats{Host: 1}) || math.Abs(float64(x.At(2, 2))-0.5) > 1e-6 {
		t.Errorf("%v, %+v, %v", err, r.Stats(), x.At(2, 2))
	}
}
