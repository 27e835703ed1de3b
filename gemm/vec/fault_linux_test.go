package vec

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"syscall"
	"testing"
	"unsafe"
)

// fenced returns a slice of a page that touches pages which may not be touched: the
// end of the slice when last, else its start.
func fenced(t *testing.T) func(n int, last bool) []float32 {
	t.Helper()
	page := os.Getpagesize()
	m, err := syscall.Mmap(-1, 0, 3*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Skipf("mmap: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Munmap(m) })
	for _, p := range [][]byte{m[:page], m[2*page:]} {
		if err := syscall.Mprotect(p, syscall.PROT_NONE); err != nil {
			t.Skipf("mprotect: %v", err)
		}
	}
	x := unsafe.Slice((*float32)(unsafe.Pointer(&m[page])), page/4)
	return func(n int, last bool) []float32 {
		if last {
			return x[len(x)-n:]
		}
		return x[:n:n]
	}
}

// TestKernelsStayInsideTheirSlices would fault on a read beside a slice, which no
// guard value shows.
func TestKernelsStayInsideTheirSlices(t *testing.T) {
	levels(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(6, 6))
		var places []func(int, bool) []float32
		for range 6 {
			places = append(places, fenced(t))
		}
		for _, k := range kernelCases() {
			for n := 1; n <= lanes+17; n++ {
				s := make([][]float32, k.slices)
				last := r.IntN(2) == 0
				for i := range s {
					s[i] = places[i](n, last)
					for j := range s[i] {
						s[i][j] = sample(r, false)
					}
				}
				inside(t, fmt.Sprintf("%s n=%d last=%v", k.name, n, last), func() { k.run(s, []float32{0.5, 0.25, 2}) })
			}
		}
	})
}

// inside fails when f faults.
func inside(t *testing.T, name string, f func()) {
	t.Helper()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			t.Fatalf("%s: touches memory beside its slices: %v", name, p)
		}
	}()
	f()
}
