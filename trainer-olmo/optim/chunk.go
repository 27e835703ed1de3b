package optim

import (
	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// chunkLen is the number of elements one worker takes at a time: with four
// float32 streams 256 KiB, which stays in a level-2 cache, and small enough that
// two threads finish together.
const chunkLen = 1 << 14

// chunk is elements [lo, hi) of parameter index.
type chunk struct {
	index, lo, hi int
}

// chunks cuts every parameter at multiples of chunkLen. The cut depends on the
// shapes only: it is the unit of work and of every sum.
func chunks[T gemm.Float](params []param.Param[T]) []chunk {
	var cs []chunk
	for i, p := range params {
		for lo := 0; lo < len(p.Value); lo += chunkLen {
			cs = append(cs, chunk{index: i, lo: lo, hi: min(lo+chunkLen, len(p.Value))})
		}
	}
	return cs
}

// firstChunks returns the index of each of n parameters' first chunk, and behind
// them the number of chunks.
func firstChunks(cs []chunk, n int) []int {
	first := make([]int, n+1)
	for _, c := range cs {
		first[c.index+1]++
	}
	for i := range n {
		first[i+1] += first[i]
	}
	return first
}

// runner calls do for every chunk, on the engine's workers when there is one.
func run(eng *gemm.Engine, n int, t gemm.Task) {
	if eng != nil {
		eng.Run(n, t)
		return
	}
	for i := range n {
		t.Do(i, 0)
	}
}

// section names the state x, whichever precision it has.
func section[T gemm.Float](name string, x []T) param.Section {
	switch x := any(x).(type) {
	case []float32:
		return param.Section{Name: name, F32: x}
	case []float64:
		return param.Section{Name: name, F64: x}
	}
	panic("optim: unreachable element type")
}

// total is the number of elements of all parameters.
func total[T gemm.Float](params []param.Param[T]) int {
	n := 0
	for _, p := range params {
		n += len(p.Value)
	}
	return n
}

// split cuts flat into one slice per parameter, in order.
func split[T gemm.Float](params []param.Param[T], flat []T) [][]T {
	out := make([][]T, len(params))
	for i, p := range params {
		out[i], flat = flat[:len(p.Value):len(p.Value)], flat[len(p.Value):]
	}
	return out
}
