package invroot_test

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/invroot"
)

func Example() {
	eng := gemm.New(2)
	defer eng.Close()
	s, err := invroot.NewSolver[float32](eng, 2, invroot.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()

	a := gemm.MatrixOf(2, 2, []float32{16, 0, 0, 81})
	x := gemm.NewMatrix[float32](2, 2)
	rep, err := s.InverseRoot(context.Background(), x, a, 4)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%.4f\n", x.Data)
	fmt.Println(rep.Method, rep.Precision, rep.Retries)
	// Output:
	// [0.5000 0.0000 0.0000 0.3333]
	// eigen single 0
}

func ExampleSolver_RefreshBasis() {
	eng := gemm.New(1)
	defer eng.Close()
	s, err := invroot.NewSolver[float64](eng, 2, invroot.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()

	factor := gemm.MatrixOf(2, 2, []float64{1, 0, 0, 9})
	basis := gemm.MatrixOf(2, 2, []float64{1, 0, 0, 1})
	perm := make([]int, 2)
	if _, err := s.RefreshBasis(context.Background(), basis, factor, perm); err != nil {
		fmt.Println(err)
		return
	}
	// The second column of the old basis has the larger estimate: it comes first.
	fmt.Println(perm, math.Abs(basis.At(1, 0)), math.Abs(basis.At(0, 1)))
	// Output:
	// [1 0] 1 1
}

func ExampleSolver_InverseRoot_refused() {
	eng := gemm.New(1)
	defer eng.Close()
	s, err := invroot.NewSolver[float32](eng, 1, invroot.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()

	x := gemm.MatrixOf(1, 1, []float32{7})
	nan := gemm.MatrixOf(1, 1, []float32{float32(math.NaN())})
	_, err = s.InverseRoot(context.Background(), x, nan, 2)
	fmt.Println(errors.Is(err, invroot.ErrNonFinite), x.Data)
	// Output:
	// true [7]
}

func ExampleBatch() {
	b, err := invroot.NewBatch[float64](2, 1, invroot.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close()
	jobs := make([]invroot.Job[float64], 3)
	for i := range jobs {
		jobs[i] = invroot.Job[float64]{
			A:        gemm.MatrixOf(1, 1, []float64{float64((i + 1) * (i + 1))}),
			Out:      gemm.NewMatrix[float64](1, 1),
			Exponent: 0.5,
		}
	}
	if err := b.Run(context.Background(), jobs); err != nil {
		fmt.Println(err)
		return
	}
	for _, j := range jobs {
		fmt.Printf("%.4f ", j.Out.Data[0])
	}
	fmt.Println()
	// Output:
	// 1.0000 0.5000 0.3333
}
