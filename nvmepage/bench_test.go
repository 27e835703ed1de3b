package nvmepage_test

import (
	"fmt"
	"testing"

	"github.com/asteria-runtime/asteria/nvmepage"
)

// BenchmarkTransfer moves objects of 4 MiB in batches of the given depth.
func BenchmarkTransfer(b *testing.B) {
	for _, engine := range []nvmepage.Engine{nvmepage.Pool, nvmepage.Uring} {
		for _, depth := range []int{1, 8} {
			for _, way := range []string{"write", "read"} {
				b.Run(fmt.Sprintf("engine=%s/depth=%d/%s", engine, depth, way), func(b *testing.B) {
					benchTransfer(b, engine, depth, way == "write")
				})
			}
		}
	}
}

func benchTransfer(b *testing.B, engine nvmepage.Engine, depth int, write bool) {
	const object = 4 << 20
	s, err := nvmepage.Open(nvmepage.Options{Paths: []string{b.TempDir()}, Engine: engine, Depth: depth})
	if err != nil {
		b.Skip(err)
	}
	defer s.Close()
	items := make([]nvmepage.Item, depth)
	for i := range items {
		items[i] = nvmepage.Item{ID: uint64(i), Data: nvmepage.Aligned(object, 4096)}
		copy(items[i].Data, fill(uint64(i), object))
	}
	if err := s.SaveAll(b.Context(), items); err != nil {
		b.Fatal(err)
	}
	f := s.LoadAll
	if write {
		f = s.SaveAll
	}
	b.SetBytes(int64(depth) * object)
	for b.Loop() {
		if err := f(b.Context(), items); err != nil {
			b.Fatal(err)
		}
	}
}
