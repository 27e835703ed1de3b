package gemm

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"
)

// TestAssemblyOffsets holds the offsets that _gen writes into the assembly.
func TestAssemblyOffsets(t *testing.T) {
	var s tile[float32]
	var d tile[float64]
	var w wedge[float64]
	for _, c := range []struct {
		name      string
		got, want uintptr
	}{
		{"a", unsafe.Offsetof(s.a), 0}, {"b", unsafe.Offsetof(s.b), 24}, {"c", unsafe.Offsetof(s.c), 48},
		{"lda", unsafe.Offsetof(s.lda), 72}, {"ldb", unsafe.Offsetof(s.ldb), 80}, {"ldc", unsafe.Offsetof(s.ldc), 88},
		{"k", unsafe.Offsetof(s.k), 96}, {"count", unsafe.Offsetof(s.count), 104}, {"astep", unsafe.Offsetof(s.astep), 112},
		{"width", unsafe.Offsetof(s.width), 120}, {"mode", unsafe.Offsetof(s.mode), 128}, {"diag", unsafe.Offsetof(s.diag), 136},
		{"bstep", unsafe.Offsetof(s.bstep), 152}, {"cstep", unsafe.Offsetof(s.cstep), 160},
		{"ahead", unsafe.Offsetof(s.ahead), 168}, {"pace", unsafe.Offsetof(s.pace), 192},
		{"alpha", unsafe.Offsetof(s.alpha), 200}, {"beta", unsafe.Offsetof(s.beta), 204},
		{"alpha64", unsafe.Offsetof(d.alpha), 200}, {"beta64", unsafe.Offsetof(d.beta), 208},
		{"l", unsafe.Offsetof(w.l), 0}, {"wedge b", unsafe.Offsetof(w.b), 24}, {"at", unsafe.Offsetof(w.at), 48},
		{"wedge step", unsafe.Offsetof(w.step), 56}, {"wedge width", unsafe.Offsetof(w.width), 64},
	} {
		if unsafe.Sizeof(uintptr(0)) == 8 && c.got != c.want {
			t.Errorf("field %s is at %d, the assembly reads %d", c.name, c.got, c.want)
		}
	}
}

// eachFamily runs f for the kernels of both types of every assembly set.
func eachFamily(t *testing.T, s func(*testing.T, *family[float32]), d func(*testing.T, *family[float64])) {
	for _, k := range kernelSets() {
		if k == Generic {
			continue
		}
		a, b := families(k)
		t.Run(k.String()+"/float32", func(t *testing.T) { s(t, a) })
		t.Run(k.String()+"/float64", func(t *testing.T) { d(t, b) })
	}
}

func TestTileKernelsMatchTheSpecification(t *testing.T) {
	eachFamily(t, tilesMatch[float32], tilesMatch[float64])
}

func tilesMatch[T Float](t *testing.T, f *family[T]) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	for vectors := 1; vectors <= f.vectors; vectors++ {
		for rows := 1; rows <= f.rows[vectors]; rows++ {
			for kMajor := range 2 {
				for mode := range 16 {
					if mode&modeAdd != 0 && mode&modeBeta != 0 {
						continue // c is added once
					}
					tileMatches(t, f, r, vectors, rows, kMajor == 1, mode, fmt.Sprintf("seed %d", seed))
				}
			}
		}
	}
}

// tileMatches compares one kernel with the portable one on random tiles.
func tileMatches[T Float](t *testing.T, f *family[T], r *rand.Rand, vectors, rows int, kMajor bool, mode int, note string) {
	t.Helper()
	wide := vectors * f.lanes
	k, count := 1+r.IntN(9), 1+r.IntN(3)
	width := wide - r.IntN(f.lanes)
	u := tile[T]{k: k, count: count, width: width, mode: mode, rows: rows, diag: r.IntN(wide+rows) - rows + 1,
		alpha: 0.5, beta: -2, ldb: wide + r.IntN(3), ldc: width + r.IntN(3)}
	u.cstep = rows * u.ldc
	kernel, reference := f.byRow[vectors][rows], tileByRow[T]
	u.lda = k + r.IntN(3)
	a := guarded[T](r, count*rows, k, u.lda)
	u.astep = rows * u.lda
	if kMajor {
		kernel, reference = f.byCol[vectors][rows], tileByCol[T]
		u.lda = rows + r.IntN(3)
		a = guarded[T](r, count*k, rows, u.lda)
		u.astep = k * u.lda
	}
	b, c := guarded[T](r, k, wide, u.ldb), guarded[T](r, count*rows, width, u.ldc)
	got, want := c.clone(), c.clone()
	u.a, u.b = a.x, b.x
	for j := 0; j < width; j += 4 { // the portable tile is 4 wide
		v := u
		v.b, v.c, v.width, v.diag = b.x[j:], want.x[j:], min(4, width-j), u.diag-j
		reference(&v)
	}
	u.c = got.x
	kernel(&u)
	name := fmt.Sprintf("%d rows, %d vectors, kMajor %v, mode %d, width %d, k %d, count %d, diag %d, %s", rows, vectors, kMajor, mode, width, k, count, u.diag, note)
	got.check(t, name)
	for i, w := range want.x {
		// One rounding a product less than the reference; operands are below 1, beta is 2.
		if d := math.Abs(float64(got.x[i] - w)); d > float64(2*k+6)*epsilon[T]()*float64(k+4) {
			t.Fatalf("%s: element %d is %g, want %g", name, i, got.x[i], w)
		}
	}
}

func TestPackKernelsMatchTheSpecification(t *testing.T) {
	eachFamily(t, packsMatch[float32], packsMatch[float64])
}

func packsMatch[T Float](t *testing.T, f *family[T]) {
	r := rand.New(rand.NewPCG(2, 2))
	for width := 1; width <= f.vectors*f.lanes; width++ {
		for _, pad := range []int{width, ceil(width, f.lanes) * f.lanes} {
			for depth := 1; depth < 12; depth++ {
				ldd := pad + r.IntN(3)
				src := guarded[T](r, depth, width, width+r.IntN(3))
				got, want := guarded[T](r, depth, pad, ldd), guarded[T](r, depth, pad, ldd)
				f.copyPanels(got.x, ldd, src.x, src.ld, depth, width, pad, panels{count: 1})
				copyPanels(want.x, ldd, src.x, src.ld, depth, width, pad, panels{count: 1})
				if !sameBits(got.all, want.all) {
					t.Fatalf("copy: width %d, pad %d, depth %d differs", width, pad, depth)
				}
				src = guarded[T](r, width, depth, depth+r.IntN(3))
				f.turnPanel(got.x, ldd, src.x, src.ld, depth, width, pad)
				turnPanel(want.x, ldd, src.x, src.ld, depth, width, pad)
				if !sameBits(got.all, want.all) {
					t.Fatalf("turn: width %d, pad %d, depth %d differs", width, pad, depth)
				}
			}
		}
	}
}

func TestTriangularKernelsMatchTheSpecification(t *testing.T) {
	eachFamily(t, wedgesMatch[float32], wedgesMatch[float64])
}

func wedgesMatch[T Float](t *testing.T, f *family[T]) {
	r := rand.New(rand.NewPCG(3, 3))
	for order := 1; order <= f.leaf; order++ {
		for width := 1; width <= 2*f.lanes; width++ {
			l := make([]T, wedgeStride*wedgeStride)
			for i := range order {
				for j := range i {
					l[i*wedgeStride+j] = T(r.Float64()-0.5) / T(order)
				}
				l[i*wedgeStride+i] = 1 + T(r.Float64())
			}
			b := guarded[T](r, order, width, width+r.IntN(3))
			for _, back := range []bool{false, true} {
				w := wedge[T]{l: l, order: order, width: width, step: b.ld}
				if back {
					w.at, w.step = (order-1)*b.ld, -b.ld
				}
				wedgeMatches(t, w, b, f.solve[order], solveWedge[T])
				wedgeMatches(t, w, b, f.times[order], timesWedge[T])
			}
		}
	}
}

func wedgeMatches[T Float](t *testing.T, w wedge[T], b *matrix[T], kernel, reference func(*wedge[T])) {
	t.Helper()
	got, want := b.clone(), b.clone()
	w.b = want.x
	reference(&w)
	w.b = got.x
	kernel(&w)
	got.check(t, fmt.Sprintf("order %d, width %d", w.order, w.width))
	for i := range want.x {
		// Rows are sums of at most order+1 terms below 2, with one rounding each.
		if d := math.Abs(float64(got.x[i] - want.x[i])); d > 8*float64(w.order+1)*epsilon[T]() {
			t.Fatalf("order %d, width %d: element %d is %g, want %g", w.order, w.width, i, got.x[i], want.x[i])
		}
	}
}

func TestKernelNamesAndChoice(t *testing.T) {
	for k, want := range map[Kernel]string{Auto: "auto", Generic: "generic", AVX2: "avx2", AVX512: "avx512", NEON: "neon", 9: "Kernel(9)"} {
		if k.String() != want {
			t.Errorf("Kernel %d is %q, want %q", int(k), k.String(), want)
		}
	}
	e := engine(t, 1, Generic)
	if e.Kernels() != "generic" {
		t.Errorf("forced kernels are %q", e.Kernels())
	}
	if got, want := engine(t, 1, Auto).Kernels(), best().String(); got != want {
		t.Errorf("automatic kernels are %q, want %q", got, want)
	}
	_, err := NewWith(Options{Threads: -2, Kernel: 17})
	const want = "gemm: Threads is -2, want >= 0\ngemm: Kernel is 17, want Auto, Generic, AVX2, AVX512 or NEON"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	for _, k := range []Kernel{AVX2, AVX512, NEON} { // no processor has all of them
		_, err := NewWith(Options{Kernel: k})
		if has := slices.Contains(kernelSets(), k); has != (err == nil) || !has && !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("kernels %v: %v, available: %v", k, err, has)
		}
	}
	if slices.Contains(kernelSets(), NEON) && slices.Contains(kernelSets(), AVX2) {
		t.Error("both NEON and AVX2 are available")
	}
}

// Advice about pages must not touch what lies in them.
func TestOnHugePagesKeepsTheSlice(t *testing.T) {
	for _, n := range []int{0, 1, hugeSize, 3*hugeSize/4 + 5, 2*hugeSize + 77} {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(i)
		}
		y := OnHugePages(x)
		if len(y) != n || n > 0 && &y[0] != &x[0] {
			t.Fatalf("%d elements: another slice of %d", n, len(y))
		}
		for i, v := range y {
			if v != float32(i) {
				t.Fatalf("%d elements: element %d is %g", n, i, v)
			}
		}
	}
}
