package gemm_test

import (
	"fmt"

	"github.com/asteria-runtime/asteria/gemm"
)

func ExampleMul() {
	e := gemm.New(2)
	defer e.Close()
	a := gemm.MatrixOf(2, 3, []float32{1, 2, 3, 4, 5, 6})
	b := gemm.MatrixOf(2, 3, []float32{1, 0, 1, 0, 1, 0})
	c := gemm.NewMatrix[float32](2, 2)
	gemm.Mul(e, false, true, 1, a, b, 0, c) // c = a * bᵀ
	fmt.Println(c.Row(0), c.Row(1))
	// Output: [4 2] [10 5]
}

func ExampleSyrk() {
	e := gemm.New(1)
	defer e.Close()
	a := gemm.MatrixOf(2, 3, []float64{1, 2, 3, 4, 5, 6})
	c := gemm.MatrixOf(2, 2, []float64{0, 9, 0, 0})
	gemm.Syrk(e, false, 1, a, 0, c) // lower triangle of a * aᵀ
	fmt.Println(c.Row(0), c.Row(1))
	// Output: [14 9] [32 77]
}

func ExampleEngine_SgemmBatch() {
	e := gemm.New(2)
	defer e.Close()
	// Two products of 1×2 by 2×1.
	a := []float32{1, 2, 3, 4}
	b := []float32{10, 1, 10, 1}
	c := make([]float32, 2)
	e.SgemmBatch(gemm.Batch{Count: 2, A: 2, B: 2, C: 1}, false, false, 1, 1, 2, 1, a, 2, b, 1, 0, c, 1)
	fmt.Println(c)
	// Output: [12 34]
}

func ExamplePotrf() {
	e := gemm.New(1)
	defer e.Close()
	a := gemm.MatrixOf(2, 2, []float64{4, 0, 2, 10})
	b := gemm.MatrixOf(2, 1, []float64{2, 10})
	if !gemm.Potrf(e, a) { // a = L * Lᵀ
		fmt.Println("not positive definite")
	}
	gemm.Trsm(e, gemm.Triangle{}, 1, a, b)            // L * y = b
	gemm.Trsm(e, gemm.Triangle{Trans: true}, 1, a, b) // Lᵀ * x = y
	fmt.Println(b.Data)
	// Output: [0 1]
}

// squares is a task whose chunks are elements.
type squares []int

func (s squares) Do(chunk, _ int) { s[chunk] *= s[chunk] }

func ExampleEngine_Run() {
	e := gemm.New(2)
	defer e.Close()
	s := squares{1, 2, 3, 4}
	e.Run(len(s), s)
	fmt.Println(s)
	// Output: [1 4 9 16]
}
