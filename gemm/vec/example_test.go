package vec_test

import (
	"fmt"

	"github.com/asteria-runtime/asteria/gemm/vec"
)

func ExampleSoftmax() {
	x := []float32{1000, 1000, 1000, 1000}
	logSum := vec.Softmax(x, x)
	fmt.Printf("%v %.4f\n", x, logSum)
	// Output: [0.25 0.25 0.25 0.25] 1001.3863
}

func ExampleAdamW() {
	p, grad := []float32{1}, []float32{0.5}
	m, v := []float32{0}, []float32{0}
	// Step 1 with beta1 0.9, beta2 0.99: the bias corrections are 1/0.1 and 1/0.01.
	lr := float32(0.1)
	vec.AdamW(p, grad, m, v, 1, 0.9, 0.99, 1-lr*0.1, lr/0.1, 10, 1e-8)
	fmt.Printf("%.4f\n", p[0])
	// Output: 0.8900
}
