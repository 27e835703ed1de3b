package asteria_test

import (
	"fmt"
	"log"
	"math"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/kron"
	"github.com/asteria-runtime/asteria/trainer-olmo/asteria"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// A model of one matrix: find W with X*W = Y, where the features in X have very
// different sizes.
func ExampleRuntime() {
	x := gemm.MatrixOf(3, 2, []float64{10, 0.1, -10, 0.2, 5, -0.3})
	y := gemm.MatrixOf(3, 2, []float64{10.3, 20.4, -9.4, -19.2, 4.1, 8.8})
	w := param.Param[float64]{Name: "w", Shape: []int{2, 2}, Value: make([]float64, 4), Grad: make([]float64, 4)}

	eng := gemm.New(2)
	defer eng.Close()
	rt, err := asteria.New([]param.Param[float64]{w}, eng, asteria.Options{Method: kron.SOAP, Frequency: 5})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close()
	residual := gemm.NewMatrix[float64](3, 2)
	const steps = 500
	for step := range int64(steps) {
		copy(residual.Data, y.Data)
		gemm.Mul(eng, false, false, 1, x, gemm.MatrixOf(2, 2, w.Value), -1, residual)
		gemm.Mul(eng, true, false, 1, x, residual, 0, gemm.MatrixOf(2, 2, w.Grad))
		if err := rt.Step(step+1, 0.1*(1-float64(step)/steps)); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Printf("%.3f\n", w.Value)
	h := rt.Health()[0]
	fmt.Println(h.Block, h.Solver, "age", h.Age, "refreshes", h.Refreshes)
	// Output:
	// [1.000 2.000 3.000 4.000]
	// w eigen age 4 refreshes 100
}

// The plan says what an optimizer will cost before it allocates anything.
func ExamplePlanFor() {
	shapes := []asteria.Shape{
		{Name: "layers.0.up_proj", Dims: []int{688, 256}, Role: param.Matrix},
		{Name: "embed", Dims: []int{4096, 256}, Role: param.Embedding},
	}
	plan, err := asteria.PlanFor[float32](shapes, 2, asteria.Options{Method: kron.Shampoo})
	if err != nil {
		log.Fatal(err)
	}
	for _, l := range plan.Lines {
		if l.Name != "" {
			fmt.Println(l.Name, l.Method, l.Total())
		}
	}
	fmt.Println(plan.Check(8<<20) != nil)
	// Output:
	// embed adamw 8388608
	// layers.0.up_proj shampoo 5720192
	// true
}

// The same model with refreshes beside training: each is adopted three steps after
// its snapshot, whenever its worker is done, so that the run repeats to the bit.
func ExampleRuntime_asteria() {
	w := param.Param[float64]{Name: "w", Shape: []int{3, 3}, Value: []float64{1, 2, 3, 4, 5, 6, 7, 8, 9}, Grad: make([]float64, 9)}
	eng := gemm.New(1)
	defer eng.Close()
	rt, err := asteria.New([]param.Param[float64]{w}, eng, asteria.Options{
		Method: kron.SOAP, Frequency: 10, Mode: asteria.Asteria,
		Async: asteria.Async{Staleness: 5, Lag: 3, LagStart: 20, Workers: 1},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close()
	for step := int64(1); step <= 600; step++ {
		copy(w.Grad, w.Value) // of half the sum of squares
		if err := rt.Step(step, 0.1*(1-float64(step)/600)); err != nil {
			log.Fatal(err)
		}
	}
	largest := 0.0
	for _, v := range w.Value {
		largest = max(largest, math.Abs(v))
	}
	t := rt.Totals()
	fmt.Println("at the minimum:", largest < 0.1)
	fmt.Println("adopted beside training:", t.Adopted, "after", t.AdoptedAfter, "steps")
	// Output:
	// at the minimum: true
	// adopted beside training: 58 after 3 steps
}
