package main

import (
	"context"
	"fmt"
	"math"
	"unsafe"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/invroot"
)

// symmetric returns a random symmetric matrix, or, graded, one whose eigenvalues
// fall geometrically from 1 to 1e-6, as those of a preconditioner's factor do.
func symmetric[T gemm.Float](n int, graded bool) []T {
	g := random[float64](n*n, 5)
	a := make([]float64, n*n)
	for i := range n {
		for j := range i + 1 {
			a[i*n+j] = (g[i*n+j] + g[j*n+i]) / 2
		}
		if graded {
			clear(a[i*n : i*n+i])
			a[i*n+i] = math.Pow(1e-6, float64(i)/float64(n-1))
		}
	}
	mirror(a, n)
	if graded {
		for seed := range uint64(4) {
			reflect(a, random[float64](n, 10+seed), n)
		}
	}
	out := make([]T, n*n)
	for i, v := range a {
		out[i] = T(v)
	}
	return out
}

func mirror[T gemm.Float](a []T, n int) {
	for i := range n {
		for j := range i {
			a[j*n+i] = a[i*n+j]
		}
	}
}

// reflect replaces a by H*a*H with H = I - 2vvᵀ/|v|²: the spectrum stays.
func reflect(a, v []float64, n int) {
	var s float64
	for _, x := range v {
		s += x * x
	}
	p := make([]float64, n) // 2*a*v/|v|²
	var vp float64
	for i := range n {
		for j := range n {
			p[i] += 2 / s * a[i*n+j] * v[j]
		}
		vp += p[i] * v[i]
	}
	for i := range n {
		for j := range n {
			a[i*n+j] += -v[i]*p[j] - p[i]*v[j] + 2*vp/s*v[i]*v[j]
		}
	}
}

// covariance returns G*Gᵀ/(2n) for a random n×2n G: condition number about 34.
func covariance[T gemm.Float](b *bench, n int) []T {
	g := random[T](2*n*n, 6)
	c := gemm.NewMatrix[T](n, n)
	gemm.Syrk(b.engine, false, T(1/float64(2*n)), gemm.MatrixOf(n, 2*n, g), 0, c)
	mirror(c.Data, n)
	return c.Data
}

func must[T any](v T, err error) T {
	if err != nil {
		fail(err)
	}
	return v
}

// lapackEigen is ?syevd with vectors on a copy of a.
type lapackEigen[T gemm.Float] struct {
	a, q, w []T
	c       *call
	info    *int64
}

func newLapackEigen[T gemm.Float](l *library, a []T, n int) *lapackEigen[T] {
	e := &lapackEigen[T]{a: a, q: make([]T, n*n), w: make([]T, n), info: new(int64)}
	work, iwork := make([]T, 1+6*n+2*n*n), make([]int32, 3+5*n)
	c := newCall(l.sym[prefix[T]()+"syevd_"]).char('V').char('L').integer(n)
	c = vector(vector(c, e.q).integer(n), e.w)
	c = vector(c, work).integer(len(work))
	c = vector(c, iwork).integer(len(iwork))
	e.c = scalarAt(c, e.info)
	return e
}

func scalarAt(c *call, p *int64) *call { return vector(c, unsafe.Slice(p, 1)) }

func (e *lapackEigen[T]) run() {
	copy(e.q, e.a)
	e.c.do()
}

// eigen builds the contest of a full eigendecomposition.
func eigen[T gemm.Float](b *bench, n int, graded bool, group string) *contest {
	a := symmetric[T](n, graded)
	name := fmt.Sprintf("%d random", n)
	if graded {
		name = fmt.Sprintf("%d graded", n)
	}
	s := must(invroot.NewSolver[T](b.engine, n, invroot.Options{Precision: precision[T]()}))
	q, w := gemm.NewMatrix[T](n, n), make([]T, n)
	c := &contest{group: group, shape: name, threads: b.engine.Threads(), flops: 9 * math.Pow(float64(n), 3), close: s.Close}
	c.entries = []*contender{{name: "asteria", run: func() {
		must(s.EigenSym(context.Background(), q, w, gemm.MatrixOf(n, n, a), false))
	}}}
	peers := []*lapackEigen[T]{nil}
	for _, l := range b.libs {
		if l.sym[prefix[T]()+"syevd_"] == 0 {
			continue
		}
		e := newLapackEigen(l, a, n)
		peers = append(peers, e)
		c.entries = append(c.entries, &contender{name: l.name, threads: l.threads, foreign: true, calls: 1, overhead: b.over.pointers, run: e.run})
	}
	c.check = func(i int) float64 { return spectral(w, peers[i].w) }
	return c
}

func precision[T gemm.Float]() invroot.Precision {
	if prefix[T]() == "s" {
		return invroot.Single
	}
	return invroot.Double
}

// spectral compares ascending eigenvalues: both have errors of a modest multiple
// of n*u*|A|; 1 stands for n*u*|A|.
func spectral[T gemm.Float](x, y []T) float64 {
	var d, norm float64
	for i := range x {
		norm = max(norm, math.Abs(float64(x[i])))
		if e := math.Abs(float64(x[i]) - float64(y[i])); e > d || e != e {
			d = e
		}
	}
	return d / (float64(len(x)) * unit[T]() * norm)
}

// lapackQR is ?geqrf and ?orgqr.
type lapackQR[T gemm.Float] struct {
	factor, form *call
}

func newLapackQR[T gemm.Float](l *library, q []T, n int) *lapackQR[T] {
	tau, work, info := make([]T, n), make([]T, 128*n), new(int64)
	f := vector(newCall(l.sym[prefix[T]()+"geqrf_"]).integer(n).integer(n), q).integer(n)
	f = scalarAt(vector(vector(f, tau), work).integer(len(work)), info)
	g := vector(newCall(l.sym[prefix[T]()+"orgqr_"]).integer(n).integer(n).integer(n), q).integer(n)
	g = scalarAt(vector(vector(g, tau), work).integer(len(work)), info)
	return &lapackQR[T]{f, g}
}

func (q *lapackQR[T]) run() {
	q.factor.do()
	q.form.do()
}

// orthogonal builds the contest of the Q of a Householder QR.
func orthogonal[T gemm.Float](b *bench, n int, group string) *contest {
	a := random[T](n*n, 7)
	s := must(invroot.NewSolver[T](b.engine, n, invroot.Options{Precision: precision[T]()}))
	q := gemm.NewMatrix[T](n, n)
	c := &contest{group: group, shape: fmt.Sprint(n), threads: b.engine.Threads(), flops: 8.0 / 3 * math.Pow(float64(n), 3), close: s.Close}
	c.entries = []*contender{{name: "asteria", run: func() {
		must(s.QR(context.Background(), q, gemm.MatrixOf(n, n, a)))
	}}}
	outs := [][]T{nil}
	for _, l := range b.libs {
		if l.sym[prefix[T]()+"geqrf_"] == 0 {
			continue
		}
		out := make([]T, n*n)
		f := newLapackQR(l, out, n)
		outs = append(outs, out)
		c.entries = append(c.entries, &contender{name: l.name, threads: l.threads, foreign: true, calls: 2, overhead: b.over.pointers, run: func() {
			copy(out, a) // column-major: this is aᵀ, just as random
			f.run()
		}})
	}
	c.check = func(i int) float64 { return departure(outs[i], n) }
	return c
}

// departure is how far a few columns of q are from orthonormal, in 4*n*u.
func departure[T gemm.Float](q []T, n int) float64 {
	var d float64
	for i := range min(n, 16) {
		for j := range i + 1 {
			var s float64
			for k := range n {
				s += float64(q[i*n+k]) * float64(q[j*n+k])
			}
			if i == j {
				s--
			}
			if e := math.Abs(s); e > d || e != e {
				d = e
			}
		}
	}
	return d / (4 * float64(n) * unit[T]())
}

// refresh builds the contest of a basis refresh, Q of A*Q0: one product and one
// QR on both sides.
func refresh[T gemm.Float](b *bench, n int, group string) *contest {
	a := covariance[T](b, n)
	start := make([]T, n*n)
	for i := range n {
		start[i*n+i] = 1
	}
	s := must(invroot.NewSolver[T](b.engine, n, invroot.Options{Precision: precision[T]()}))
	q := gemm.NewMatrix[T](n, n)
	c := &contest{group: group, shape: fmt.Sprint(n), threads: b.engine.Threads(), flops: (2 + 8.0/3) * math.Pow(float64(n), 3), close: s.Close}
	c.entries = []*contender{{name: "asteria", run: func() {
		copy(q.Data, start)
		must(s.Iterate(context.Background(), q, gemm.MatrixOf(n, n, a), nil))
	}}}
	outs := [][]T{nil}
	for _, l := range b.libs {
		if l.sym[prefix[T]()+"geqrf_"] == 0 {
			continue
		}
		out := make([]T, n*n)
		p := scalar(newCall(l.sym[prefix[T]()+"gemm_"]).char('N').char('N').integer(n).integer(n).integer(n), T(1))
		p = scalar(vector(vector(p, a).integer(n), start).integer(n), T(0))
		p = vector(p, out).integer(n)
		f := newLapackQR(l, out, n)
		outs = append(outs, out)
		c.entries = append(c.entries, &contender{name: l.name, threads: l.threads, foreign: true, calls: 3, overhead: b.over.pointers, run: func() { p.do(); f.run() }})
	}
	c.check = func(i int) float64 { return departure(outs[i], n) }
	return c
}

// inverseRoot builds the contest of A^(-1/4). The peer's way is its own
// eigendecomposition, columns scaled by λ^(-1/8), and a rank update of them.
func inverseRoot[T gemm.Float](b *bench, n int, group string) *contest {
	a := covariance[T](b, n)
	s := must(invroot.NewSolver[T](b.engine, n, invroot.Options{}))
	root := gemm.NewMatrix[T](n, n)
	c := &contest{group: group, shape: fmt.Sprint(n), threads: b.engine.Threads(), flops: 10 * math.Pow(float64(n), 3), close: s.Close}
	c.entries = []*contender{{name: "asteria", run: func() {
		must(s.InverseRoot(context.Background(), root, gemm.MatrixOf(n, n, a), 4))
	}}}
	outs := [][]T{nil}
	for _, l := range b.libs {
		if l.sym[prefix[T]()+"syevd_"] == 0 {
			continue
		}
		e := newLapackEigen(l, a, n)
		out := make([]T, n*n)
		k := scalar(newCall(l.sym[prefix[T]()+"syrk_"]).char('U').char('N').integer(n).integer(n), T(1))
		k = scalar(vector(k, e.q).integer(n), T(0))
		k = vector(k, out).integer(n)
		outs = append(outs, out)
		c.entries = append(c.entries, &contender{name: l.name, threads: l.threads, foreign: true, calls: 2, overhead: b.over.pointers, run: func() {
			e.run()
			for i, w := range e.w {
				f := T(math.Pow(float64(w), -0.125))
				for j := range n {
					e.q[i*n+j] *= f
				}
			}
			k.do()
			mirror(out, n)
		}})
	}
	c.check = func(i int) float64 { return distance(root.Data, outs[i], 34*float64(n)) }
	return c
}
