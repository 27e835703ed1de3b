package nvmepage_test

import (
	"context"
	"fmt"
	"os"

	"github.com/asteria-runtime/asteria/nvmepage"
)

// An object leaves memory and comes back, checked.
func Example() {
	dir, err := os.MkdirTemp("", "pages")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	store, err := nvmepage.Open(nvmepage.Options{Paths: []string{dir}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	ctx := context.Background()
	if err := store.Save(ctx, 42, []byte("the roots of block 42")); err != nil {
		fmt.Println(err)
		return
	}
	back := make([]byte, 21)
	fmt.Println(store.Load(ctx, 42, back), string(back))
	// Output:
	// <nil> the roots of block 42
}
