package kron_test

import (
	"context"
	"fmt"
	"log"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/kron"
	"github.com/asteria-runtime/asteria/kron/krontest"
)

// SOAP on ½‖A·W − B‖² with a badly scaled A.
func ExampleWorker_Step() {
	a := gemm.MatrixOf(2, 2, []float64{10, 0, 0, 0.1})
	b := gemm.MatrixOf(2, 2, []float64{10, 20, 0.3, 0.4})
	param, grad, residual := make([]float64, 4), make([]float64, 4), make([]float64, 4)
	w, g, r := gemm.MatrixOf(2, 2, param), gemm.MatrixOf(2, 2, grad), gemm.MatrixOf(2, 2, residual)

	eng := gemm.New(1)
	defer eng.Close()
	block, err := kron.NewBlock[float64]("w", []int{2, 2}, kron.Options{Every: 2})
	if err != nil {
		log.Fatal(err)
	}
	layout := block.Layout()
	state, err := block.Bind(kron.Cut(layout, make([]float64, layout.Len())), new(kron.Meta))
	if err != nil {
		log.Fatal(err)
	}
	block.Reset(state)
	worker := kron.NewWorker[float64](kron.NewCPU[float64](eng), krontest.Reference[float64]{}, block)
	for step := range 400 {
		copy(residual, b.Data)
		gemm.Mul(eng, false, false, 1, a, w, -1, r)
		gemm.Mul(eng, true, false, 1, a, r, 0, g)
		lr := 0.1 * (1 - float64(step)/400)
		if _, err := worker.Step(context.Background(), block, state, kron.MatrixView(w), kron.MatrixView(g), lr); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Printf("%.2f\n", param)
	// Output: [1.00 2.00 3.00 4.00]
}

func ExamplePartition() {
	// A 6×4 matrix in blocks with sides of at most 3, as Distributed Shampoo
	// cuts it.
	tiles, err := kron.Partition([]int{6, 4}, kron.Tiling{Merge: kron.MergeRight, Limit: 3, Split: true})
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range tiles {
		fmt.Println(t.Dims, "at", t.Offset)
	}
	// Output:
	// [3 3] at 0
	// [3 1] at 3
	// [3 3] at 12
	// [3 1] at 15
}

func ExampleLayout() {
	block, err := kron.NewBlock[float32]("up_proj", []int{688, 256}, kron.Options{Method: kron.KLShampoo})
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range block.Layout().Sections {
		fmt.Println(s.Name(), s.Len)
	}
	// Output:
	// factor.0 473344
	// basis.0 473344
	// gain.0 688
	// factor.1 65536
	// basis.1 65536
	// gain.1 256
	// momentum 176128
}
