package uvm

import "testing"

func BenchmarkPoolAlloc(b *testing.B) {
	p, err := NewPool(Host{}, 0)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		buf, err := p.Alloc(4096)
		if err != nil {
			b.Fatal(err)
		}
		if err := buf.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFirstTouch compares faulting a buffer in by prefetch with touching it.
func BenchmarkFirstTouch(b *testing.B) {
	const n = 64 << 20
	for _, how := range []string{"prefetch", "write"} {
		b.Run("how="+how, func(b *testing.B) {
			b.SetBytes(n)
			for b.Loop() {
				buf, err := Host{}.Alloc(n)
				if err != nil {
					b.Fatal(err)
				}
				if how == "prefetch" {
					err = buf.Prefetch()
				} else {
					for i := 0; i < n; i += 4096 {
						buf.Bytes()[i] = 1
					}
				}
				if err != nil {
					b.Fatal(err)
				}
				if err := buf.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
