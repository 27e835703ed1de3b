package gemm

import (
	"math/rand/v2"
	"os"
	"runtime/debug"
	"syscall"
	"testing"
	"unsafe"
)

// fence is memory between two pages that may not be touched. Guards of NaN show what
// is used beyond an operand; the pages show what is read at all.
type fence struct{ inside []byte }

// newFence maps at least size bytes until the test ends.
func newFence(t *testing.T, size int) fence {
	t.Helper()
	page := os.Getpagesize()
	size = ceil(size, page) * page
	m, err := syscall.Mmap(-1, 0, size+2*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Skipf("mmap: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Munmap(m) })
	for _, p := range [][]byte{m[:page], m[page+size:]} {
		if err := syscall.Mprotect(p, syscall.PROT_NONE); err != nil {
			t.Skipf("mprotect: %v", err)
		}
	}
	return fence{m[page : page+size]}
}

// at returns a copy of x that touches the first or the last page.
func at[T Float](f fence, last bool, x []T) []T {
	if len(x) == 0 {
		return x
	}
	size := int(unsafe.Sizeof(x[0]))
	b := f.inside[:len(x)*size]
	if last {
		b = f.inside[len(f.inside)-len(x)*size:]
	}
	y := unsafe.Slice((*T)(unsafe.Pointer(&b[0])), len(x))
	copy(y, x)
	return y
}

// fenced moves the operands of c into fences and back.
func fenced[T Float](t *testing.T, e *Engine, c *testCase[T], r *rand.Rand, f [3]fence) {
	t.Helper()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	want := c.run(e)
	x := c.c.clone()
	d := *c
	a, b := *c.a, *c.b
	a.x, b.x = at(f[0], r.IntN(2) == 0, a.x), at(f[1], r.IntN(2) == 0, b.x)
	got := at(f[2], r.IntN(2) == 0, x.x)
	d.a, d.b = &a, &b
	defer func() {
		if p := recover(); p != nil {
			t.Fatalf("%v: touches memory beside its operands: %v", c, p)
		}
	}()
	if d.lower {
		gemmLower(e, d.ta, d.tb, d.m, d.k, d.alpha, a.x, a.ld, b.x, b.ld, d.beta, got, x.ld)
	} else {
		gemm(e, d.ta, d.tb, d.m, d.n, d.k, d.alpha, a.x, a.ld, b.x, b.ld, d.beta, got, x.ld)
	}
	if !sameBits(want.x, got) {
		t.Fatalf("%v: the address changes bits", c)
	}
}

func TestNothingBesideTheOperandsIsRead(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rounds := 300
	if testing.Short() {
		rounds = 60
	}
	for _, k := range kernelSets() {
		t.Run(k.String(), func(t *testing.T) {
			e := engine(t, 1, k)
			r := rand.New(rand.NewPCG(seed, 12))
			f := [3]fence{newFence(t, 1<<16), newFence(t, 1<<16), newFence(t, 1<<16)}
			for range rounds {
				c := randomCase[float32](r, 1+r.IntN(40), 1+r.IntN(60), 1+r.IntN(60))
				fenced(t, e, c, r, f)
				d := randomCase[float64](r, 1+r.IntN(40), 1+r.IntN(60), 1+r.IntN(60))
				if r.IntN(4) == 0 {
					d.m, d.lower = d.n, true
					d.operands(r)
				}
				fenced(t, e, d, r, f)
			}
			trianglesFenced(t, e, r, f)
		})
	}
}

// trianglesFenced solves on panels at the edge of memory.
func trianglesFenced(t *testing.T, e *Engine, r *rand.Rand, f [3]fence) {
	t.Helper()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	for _, tri := range triangles() {
		m, n := 1+r.IntN(40), 1+r.IntN(40)
		order := tri.order(m, n)
		a, b := guarded[float32](r, order, order, order), guarded[float32](r, m, n, n)
		for i := range order {
			a.x[i*order+i] = 4
		}
		x, y := at(f[0], r.IntN(2) == 0, a.x), at(f[1], r.IntN(2) == 0, b.x)
		func() {
			defer func() {
				if p := recover(); p != nil {
					t.Fatalf("%+v m=%d n=%d: touches memory beside its operands: %v", tri, m, n, p)
				}
			}()
			e.Strsm(tri, m, n, 1, x, order, y, n)
			e.Strmm(tri, m, n, 1, x, order, y, n)
		}()
	}
}
