package coherreg

import "testing"

func benchRegistry(b *testing.B, mode Mode) *Registry[uint64, *[8]float32] {
	b.Helper()
	keys := make([]uint64, 1600) // the blocks of a 7B model
	for i := range keys {
		keys[i] = uint64(i)
	}
	r, err := New[uint64, *[8]float32](keys, Options{Mode: mode, Budget: Budget{Hard: 5}})
	if err != nil {
		b.Fatal(err)
	}
	v := new([8]float32)
	for _, k := range keys {
		if _, err := r.Install(k, Entry[*[8]float32]{Value: v}); err != nil {
			b.Fatal(err)
		}
	}
	return r
}

func BenchmarkLoad(b *testing.B) {
	r := benchRegistry(b, Scheduled)
	b.ReportAllocs()
	k := uint64(0)
	for b.Loop() {
		if _, ok := r.Load(k); !ok {
			b.Fatal("missing")
		}
		k = (k + 1) % 1600
	}
}

func BenchmarkAdopt(b *testing.B) {
	for _, name := range []string{"nothing due", "due and published"} {
		b.Run(name, func(b *testing.B) {
			r := benchRegistry(b, Scheduled)
			b.ReportAllocs()
			step := int64(0)
			for b.Loop() {
				step++
				if name != "nothing due" {
					if err := r.Due(7, step, step); err != nil {
						b.Fatal(err)
					}
					r.Publish(7, step, nil)
				}
				if _, _, err := r.Adopt(b.Context(), 7, step); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
