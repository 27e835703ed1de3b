package hooks

import (
	"context"
	"fmt"
	"testing"
)

func BenchmarkFire(b *testing.B) {
	for _, n := range []int{0, 1, 8} {
		b.Run(fmt.Sprintf("hooks=%d", n), func(b *testing.B) {
			var s Schedule
			for range n {
				s.On(PreForward, "x", Every(10, 3), func(context.Context, Event) error { return nil })
			}
			b.ReportAllocs()
			step := int64(0)
			for b.Loop() {
				step++
				s.Fire(background, Event{Point: PreForward, Step: step})
			}
		})
	}
}

func BenchmarkStagger(b *testing.B) {
	costs := make([]int64, 500)
	for i := range costs {
		costs[i] = int64(i*7919%1024) << 10
	}
	b.ReportAllocs()
	for b.Loop() {
		Stagger(costs, 100)
	}
}
