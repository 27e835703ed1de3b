package krontest

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/kron"
)

// Families are the patterns of the files that [Run] understands.
var Families = []string{"soap_*.json", "shampoo_*.json", "klshampoo_*.json", "klsoap_*.json", "stale_*.json"}

// Solvers makes a solver for blocks with sides up to order; ridge is absolute
// and added to a matrix before its root is taken.
type Solvers struct {
	Float64 func(t testing.TB, ridge float64, order int) kron.Refresher[float64]
	Float32 func(t testing.TB, ridge float64, order int) kron.Refresher[float32]
	// Ops64 and Ops32 make the operations; nil means the host's.
	Ops64 func(t testing.TB) kron.Ops[float64]
	Ops32 func(t testing.TB) kron.Ops[float32]
}

func (s Solvers) ops64(t testing.TB) kron.Ops[float64] {
	if s.Ops64 == nil {
		return hostOps[float64](t)
	}
	return s.Ops64(t)
}

func (s Solvers) ops32(t testing.TB) kron.Ops[float32] {
	if s.Ops32 == nil {
		return hostOps[float32](t)
	}
	return s.Ops32(t)
}

func hostOps[T gemm.Float](t testing.TB) kron.Ops[T] {
	engine := gemm.New(1)
	t.Cleanup(engine.Close)
	return kron.NewCPU[T](engine)
}

// Run plays every file in dir that matches pattern, one subtest each. It skips
// the family when dir has no such file, and fails when dir has no golden file
// of any family, since then nothing would be tested at all.
func Run(t *testing.T, dir, pattern string, solvers Solvers) {
	t.Helper()
	if all, _ := filepath.Glob(filepath.Join(dir, "*.json")); len(all) == 0 {
		t.Fatalf("no golden file in %s", dir)
	}
	paths, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) == 0 {
		t.Skipf("%s has no %s", dir, pattern)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) { runFile(t, path, solvers) })
	}
}

// Dir returns the folder of the golden files: the one that the environment
// names in ASTERIA_GOLDEN_OPTIM, which then replaces the bundled one.
func Dir(bundled string) string { return or(os.Getenv("ASTERIA_GOLDEN_OPTIM"), bundled) }

func runFile(t *testing.T, path string, solvers Solvers) {
	f, err := readFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Cases) == 0 {
		t.Fatalf("%s has no cases", path)
	}
	for i := range f.Cases {
		c := &f.Cases[i]
		for _, space := range []kron.MomentumSpace{kron.MomentumOriginal, kron.MomentumEigen} {
			t.Run(fmt.Sprintf("%s/float64/momentum%d", c.Name, space), func(t *testing.T) {
				runCase(t, f, c, space, f.tolerance64(c), solvers.Float64, solvers.ops64, false)
			})
		}
		t.Run(c.Name+"/float32", func(t *testing.T) {
			tol, injectAll, ok := f.tolerance32(c)
			if !ok {
				t.Skip("the file states no tolerance for float32")
			}
			if f.only64() {
				t.Skip("the file says to compare in float64: in float32 its factors are noise")
			}
			runCase(t, f, c, kron.MomentumEigen, tol, solvers.Float32, solvers.ops32, injectAll)
		})
	}
}

// tolerance64 is what the case or the file states, else 1e-10. Runs marked
// inject_Q are sensitive to input noise at the 1e-9 level: 1e-8, as the golden
// files' README has it.
func (f *file) tolerance64(c *testCase) float64 {
	if c.Tolerance > 0 {
		return c.Tolerance
	}
	if c.CompareMode == "inject_Q" {
		return 1e-8
	}
	if v, ok := f.number("float64_max_abs"); ok {
		return v
	}
	return 1e-10
}

// only64 reports whether the file's note on float32 sends the reader to float64:
// rank-deficient factors without damping, where float32 has no answer.
func (f *file) only64() bool {
	return strings.Contains(string(f.Tolerance["float32_note"]), "compare in float64")
}

func (f *file) tolerance32(c *testCase) (tol float64, injectAll, ok bool) {
	if v, ok := f.number("float32_max_abs_with_inject_all_Q"); ok {
		return v, true, true
	}
	v, ok := f.number("float32_max_abs")
	return v, false, ok
}

// player runs one case.
type player[T gemm.Float] struct {
	c      *testCase
	opts   kron.Options
	blocks []*kron.Block[T]
	tiles  []kron.Tile
	states []*kron.State[T]
	worker *kron.Worker[T]
	solver *injector[T]
	param  []T
	lr     float64

	delay   int
	pending [][]delayed[T] // per block, oldest first
}

// delayed is a finished refresh that waits for its step.
type delayed[T gemm.Float] struct {
	call int
	job  *kron.Job[T]
}

func runCase[T gemm.Float](t *testing.T, f *file, c *testCase, space kron.MomentumSpace, tol float64,
	solver func(testing.TB, float64, int) kron.Refresher[T], ops func(testing.TB) kron.Ops[T], injectAll bool) {
	p, err := newPlayer[T](t, f, c, space, solver, ops)
	if err != nil {
		t.Fatal(err)
	}
	if injectAll && c.CompareMode != "" {
		p.solver.all = true
	}
	want := c.AfterCall
	if want == nil {
		want = c.AfterStep
	}
	if len(want) == 0 || len(want) > len(c.Grads) {
		t.Fatalf("case has %d gradients and %d parameters", len(c.Grads), len(want))
	}
	for i := range want {
		if err := p.step(i + 1); err != nil {
			t.Fatal(err)
		}
		if d := maxDiff(p.param, want[i]); !(d <= tol) {
			t.Fatalf("parameters after call %d differ by %g, want at most %g", i+1, d, tol)
		}
		p.compareCall(t, i, tol)
	}
	p.compareFinal(t, tol)
}

func newPlayer[T gemm.Float](t *testing.T, f *file, c *testCase, space kron.MomentumSpace,
	solver func(testing.TB, float64, int) kron.Refresher[T], ops func(testing.TB) kron.Ops[T]) (*player[T], error) {
	method, err := f.method(c)
	if err != nil {
		return nil, err
	}
	opts, err := c.options(method)
	if err != nil {
		return nil, err
	}
	opts.Momentum = space
	p := &player[T]{c: c, opts: opts, delay: c.DelayCalls + c.DelaySteps, lr: c.lr(method), param: narrowed[T](c.Param0)}
	if p.tiles, err = c.tiles(method); err != nil {
		return nil, err
	}
	for i, tile := range p.tiles {
		b, err := kron.NewBlock[T](fmt.Sprintf("%s[%d]", c.Name, i), tile.Dims, opts)
		if err != nil {
			return nil, err
		}
		layout := b.Layout()
		st, err := b.Bind(kron.Cut(layout, make([]T, layout.Len())), new(kron.Meta))
		if err != nil {
			return nil, err
		}
		b.Reset(st)
		p.blocks, p.states = append(p.blocks, b), append(p.states, st)
	}
	p.pending = make([][]delayed[T], len(p.blocks))
	if err := c.checkShapes(p.tiles); err != nil {
		return nil, err
	}
	order := 0
	for _, d := range c.Shape {
		order = max(1, order) * max(1, d)
	}
	ridge := 0.0
	if method == kron.Shampoo {
		ridge = max(0, opts.Epsilon)
	}
	p.solver = &injector[T]{Refresher: solver(t, ridge, order), c: c}
	p.worker = kron.NewWorker(ops(t), kron.Refresher[T](p.solver), p.blocks...)
	return p, nil
}

// checkShapes compares the tiles with those the reference reports.
func (c *testCase) checkShapes(tiles []kron.Tile) error {
	if c.WorkShape != nil && fmt.Sprint(tiles[0].Dims) != fmt.Sprint(c.WorkShape) {
		return fmt.Errorf("merged to %v, want %v", tiles[0].Dims, c.WorkShape)
	}
	if c.BlockShapes == nil {
		return nil
	}
	var got [][]int
	for _, tile := range tiles {
		got = append(got, tile.Dims)
	}
	if fmt.Sprint(got) != fmt.Sprint(c.BlockShapes) {
		return fmt.Errorf("cut into %v, want %v", got, c.BlockShapes)
	}
	return nil
}

// step runs call number call of every block, with adoption p.delay calls late.
func (p *player[T]) step(call int) error {
	grad := narrowed[T](p.c.Grads[call-1])
	w := p.worker
	for i, b := range p.blocks {
		param, g := kron.TileView(p.param, p.tiles[i]), kron.TileView(grad, p.tiles[i])
		b.Begin(p.states[i], param, g, p.lr, w.Ops, w.Scratch)
		if err := p.adoptionPoint(call, i); err != nil {
			return err
		}
		b.Finish(p.states[i], param, g, p.lr, w.Ops, w.Scratch)
		if err := w.Ops.Sync(); err != nil {
			return err
		}
	}
	return nil
}

func (p *player[T]) adoptionPoint(call, i int) error {
	b, st := p.blocks[i], p.states[i]
	if !b.SnapshotFirst() {
		if err := p.adopt(call, i); err != nil {
			return err
		}
	}
	if b.Due(st.Meta) {
		job := b.NewJob()
		if err := p.worker.Ops.Sync(); err != nil {
			return err
		}
		if err := b.Snapshot(st, &job.Snapshot); err != nil {
			return err
		}
		p.solver.begin(call)
		if err := b.Refresh(context.Background(), p.solver, p.worker.Ops, &job.Snapshot, &job.Result); err != nil {
			return err
		}
		at := call + p.delay
		if call == 1 && !b.SnapshotFirst() {
			at = call // the first basis is always needed at once
		}
		p.pending[i] = append(p.pending[i], delayed[T]{at, job})
	}
	return p.adopt(call, i)
}

// adopt installs what is due at this call. Jobs finish in the order of their
// snapshots, so the oldest is first.
func (p *player[T]) adopt(call, i int) error {
	for len(p.pending[i]) > 0 && p.pending[i][0].call <= call {
		job := p.pending[i][0].job
		p.pending[i] = p.pending[i][1:]
		if err := p.blocks[i].Install(p.states[i], &job.Result, p.worker.Ops, p.worker.Scratch); err != nil {
			return err
		}
	}
	return nil
}

// injector replaces bases by recorded ones, as compare_mode asks: some factors
// are rank deficient, and then a basis of the null space is the solver's choice.
type injector[T gemm.Float] struct {
	kron.Refresher[T]
	c    *testCase
	all  bool
	next [][]float64 // recorded bases for the modes still to come
}

// begin chooses what the refreshes of this call will return.
func (s *injector[T]) begin(call int) {
	s.next = nil
	c := s.c
	if call == 1 && c.InitialQ != nil {
		s.next = present(c.InitialQ)
	}
	mode := c.CompareMode
	all := s.all || mode == "inject_all_Q" || mode == "inject_Q"
	for _, r := range c.Refreshes {
		if r.Call == call && (all || (mode == "inject_initial_Q" && call == 1)) {
			s.next = present(r.Q)
		}
	}
	for _, r := range c.QAfter {
		if r.Step == call && all {
			s.next = present(r.Q)
		}
	}
}

// present drops the modes without a basis.
func present(q [][]float64) [][]float64 {
	var out [][]float64
	for _, m := range q {
		if m != nil {
			out = append(out, m)
		}
	}
	return out
}

func (s *injector[T]) inject(q gemm.Matrix[T]) error {
	if len(s.next) == 0 {
		return nil
	}
	m := s.next[0]
	s.next = s.next[1:]
	if len(m) != q.Rows*q.Cols {
		return fmt.Errorf("krontest: recorded basis has %d elements, want %d", len(m), q.Rows*q.Cols)
	}
	for i := range q.Rows {
		for j := range q.Cols {
			q.Set(i, j, T(m[i*q.Cols+j]))
		}
	}
	return nil
}

func (s *injector[T]) Eigen(ctx context.Context, q gemm.Matrix[T], w []T, a gemm.Matrix[T], descending bool) error {
	if err := s.Refresher.Eigen(ctx, q, w, a, descending); err != nil {
		return err
	}
	return s.inject(q)
}

func (s *injector[T]) Iterate(ctx context.Context, q, a gemm.Matrix[T], perm []int) error {
	if err := s.Refresher.Iterate(ctx, q, a, perm); err != nil {
		return err
	}
	return s.inject(q)
}

func (s *injector[T]) Diagonalize(ctx context.Context, q gemm.Matrix[T], w []T, a gemm.Matrix[T], maxIter int, tol float64) error {
	if err := s.Refresher.Diagonalize(ctx, q, w, a, maxIter, tol); err != nil {
		return err
	}
	return s.inject(q)
}

func narrowed[T gemm.Float](x []float64) []T {
	out := make([]T, len(x))
	for i, v := range x {
		out[i] = T(v)
	}
	return out
}

func maxDiff[T gemm.Float](got []T, want []float64) float64 {
	if len(got) != len(want) {
		return math.Inf(1)
	}
	d := 0.0
	for i, v := range got {
		if diff := math.Abs(float64(v) - want[i]); !(diff <= d) {
			d = diff
		}
	}
	return d
}

// unmarshal decodes the named entry of the final state; ok is false without it.
func unmarshal(c *testCase, key string, dst any) bool {
	raw := c.Final[key]
	return len(raw) > 0 && string(raw) != "null" && json.Unmarshal(raw, dst) == nil
}
