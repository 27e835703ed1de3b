package uvm_test

import (
	"fmt"

	"github.com/asteria-runtime/asteria/uvm"
)

// State of a known size comes from a pool with a limit, outside the Go heap.
func Example() {
	pool, err := uvm.NewPool(uvm.Host{}, 1<<20)
	if err != nil {
		fmt.Println(err)
		return
	}
	factor, err := pool.Alloc(512 * 512 * 4)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(factor.Float32s()), "elements")
	_, err = pool.Alloc(1 << 20)
	fmt.Println(err)
	if err := factor.Close(); err != nil {
		fmt.Println(err)
	}
	fmt.Println(pool.Close())
	// Output:
	// 262144 elements
	// uvm: pool limit: 1048576 bytes in use + 1048576 asked for > 1048576
	// <nil>
}
