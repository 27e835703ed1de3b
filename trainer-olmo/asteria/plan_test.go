package asteria

import (
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/kron"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// fieldShapes are the parameters of field failure A10.
func fieldShapes() []Shape {
	return []Shape{
		{Name: "embed", Dims: []int{50304, 768}, Role: param.Embedding},
		{Name: "head", Dims: []int{151936, 4096}, Role: param.Head},
		{Name: "conv", Dims: []int{256, 128, 4, 4}, Role: param.Matrix},
		{Name: "long", Dims: []int{1000000}, Role: param.Matrix},
		{Name: "wide", Dims: []int{50304, 768}, Role: param.Matrix},
		{Name: "huge", Dims: []int{151936, 4096}, Role: param.Matrix},
	}
}

// Field failure A10: no factor side above the limit, the plan is known without
// allocating, and a limit is refused with the arithmetic.
func TestA10_PlanBoundsFactors(t *testing.T) {
	for _, m := range methods {
		for _, oneSided := range []bool{false, true} {
			o := Options{Method: m, OneSidedEmbeddings: oneSided && (m == kron.SOAP || m == kron.EigenShampoo)}
			sites, _, err := route[float32](fieldShapes(), o)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range sites {
				for k := range s.block.Modes() {
					if n := s.block.FactorOrder(k); n > 2048 {
						t.Errorf("%v: %s has a factor of order %d", m, s.block.Name(), n)
					}
				}
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			plan, err := PlanFor[float32](fieldShapes(), 2, o)
			runtime.ReadMemStats(&after)
			if err != nil {
				t.Fatal(err)
			}
			if spent := after.TotalAlloc - before.TotalAlloc; spent > 16<<20 {
				t.Errorf("%v: planning allocated %d bytes", m, spent)
			}
			// Two moments for every element, at least, less Shampoo-KL's second.
			if floor := int64(4 * (50304*768 + 151936*4096)); plan.Total() < floor {
				t.Errorf("%v: total %d is below %d", m, plan.Total(), floor)
			}
			err = plan.Check(1 << 20)
			for _, part := range []string{"needs ", " moments ", "the limit is 1048576", "huge [151936 4096]"} {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("%v: refusal %v lacks %q", m, err, part)
				}
			}
		}
	}
}

// The plan is within 1% of what is then really allocated, state by state and in
// all.
func TestA10_PlanIsWhatIsAllocated(t *testing.T) {
	for i, m := range []kron.Method{kron.SOAP, kron.Shampoo, kron.KLShampoo, kron.EigenShampoo, kron.SOAP, kron.Shampoo, kron.KLShampoo} {
		params := []param.Param[float32]{
			zeros("embed", param.Embedding, 50304, 256),
			tensor[float32]("up", param.Matrix, 700, 200),
			tensor[float32]("down", param.Matrix, 200, 700),
			tensor[float32]("cut", param.Matrix, 1200, 300),
			tensor[float32]("conv", param.Matrix, 64, 32, 4, 4),
			tensor[float32]("long", param.Matrix, 100000),
		}
		o := Options{Method: m, Frequency: 1, MaxPrecondDim: 800}
		last := int64(2)
		if i >= 4 { // workers beside training have memory of their own, once they have worked
			o.Mode, o.Async = Asteria, Async{LagStart: 3, Workers: 2}
			last = 6
		}
		eng := gemm.New(1)
		defer eng.Close()
		fill(params[1:], 1, 1)
		before := live()
		r, err := New(params, eng, o)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		for step := int64(1); step <= last; step++ {
			if err := r.Step(step, 1e-3); err != nil {
				t.Fatal(err)
			}
		}
		spent := live() - before
		sections := int64(0)
		for _, s := range r.Sections() {
			sections += 4*int64(len(s.F32)) + 8*int64(len(s.I64))
		}
		plan := r.Plan()
		state := plan.Class(ClassFactors) + plan.Class(ClassRoots) + plan.Class(ClassMoments) + plan.Class(ClassCounter)
		if d := sections - state; d != 8 { // AdamW's own counter
			t.Errorf("%v, %v: sections hold %d bytes, the plan says %d", m, o.Mode, sections, state)
		}
		held := int64(0)
		for _, s := range r.PendingSections() {
			held += 4*int64(len(s.F32)) + 8*int64(len(s.I64))
		}
		if held != plan.Pending {
			t.Errorf("%v, %v: %d bytes of pending results, the plan says %d", m, o.Mode, held, plan.Pending)
		}
		if ratio := spent / float64(plan.Total()); math.Abs(ratio-1) > 0.01 {
			t.Errorf("%v, %v: allocated %.0f bytes, planned %d (ratio %.4f; solver line %d)", m, o.Mode, spent, plan.Total(), ratio, plan.Class(ClassSolver))
		}
		runtime.KeepAlive(r)
		runtime.KeepAlive(params)
	}
}

func zeros(name string, role param.Role, dims ...int) param.Param[float32] {
	n := size(dims)
	return param.Param[float32]{Name: name, Shape: dims, Role: role, Value: make([]float32, n), Grad: make([]float32, n)}
}

// live returns the bytes in use on the heap. Pools give their contents up at the
// second collection only.
func live() float64 {
	var m runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

func TestPlanNamesEveryParameterOnce(t *testing.T) {
	plan, err := PlanFor[float64](fieldShapes(), 1, Options{Method: kron.Shampoo})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, l := range plan.Lines {
		seen[l.Name]++
		if l.Total() <= 0 {
			t.Errorf("line %q has %d bytes", l.Name, l.Total())
		}
	}
	for _, s := range fieldShapes() {
		if seen[s.Name] != 1 {
			t.Errorf("%s has %d lines", s.Name, seen[s.Name])
		}
	}
	sum := int64(0)
	for _, c := range classes {
		sum += plan.Class(c)
	}
	if sum != plan.Total() {
		t.Errorf("classes add up to %d, lines to %d", sum, plan.Total())
	}
}

// The device's memory is known with the plan, and what it cannot hold is refused with
// the arithmetic: state only where it lies there, working memory always.
func TestADeviceThatIsTooSmallIsRefused(t *testing.T) {
	shapes := []Shape{{Name: "w", Dims: []int{512, 256}, Role: param.Matrix}}
	p, err := PlanFor[float32](shapes, 1, Options{Method: kron.SOAP, Mode: Asteria})
	if err != nil {
		t.Fatal(err)
	}
	d := p.Device
	// Two factors, two bases, two moments.
	if state := int64(4 * (2*(512*512+256*256) + 2*512*256)); d.State != state {
		t.Errorf("state %d, want %d", d.State, state)
	}
	work := d.Operands + d.Refreshes + d.Libraries
	for _, c := range []struct {
		room, free int64
		refused    bool
	}{
		{d.State, d.State + work, false}, {d.State - 1, d.State + work, true}, {d.State, d.State + work - 1, true},
		{math.MaxInt64, work, false}, {math.MaxInt64, work - 1, true},
	} {
		err := p.CheckDevice(c.room, c.free)
		if (err != nil) != c.refused || err != nil && !strings.Contains(err.Error(), "refreshes") {
			t.Errorf("room %d, free %d: %v", c.room, c.free, err)
		}
	}
}
