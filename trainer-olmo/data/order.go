package data

import "fmt"

// Shuffle permutes indices as numpy's Generator(PCG64(seed)).shuffle permutes
// an array of the same length.
func Shuffle(indices []uint32, seed uint64) {
	g := newPCG64Seed(seed)
	for i := len(indices) - 1; i > 0; i-- {
		j := g.interval(uint32(i))
		indices[i], indices[j] = indices[j], indices[i]
	}
}

// CoreOrder writes OLMo-core's order of n instances in an epoch (the first is
// 1) to dst, which it grows as needed, and returns it. chunk consecutive
// instances stay together; with a chunk of more than 1 the last n mod chunk
// instances are left out.
func CoreOrder(dst []uint32, n, chunk int, seed uint64, epoch int64) []uint32 {
	chunks := n / chunk
	dst = sized(dst, chunks*chunk)
	for i := range chunks {
		dst[i] = uint32(i)
	}
	Shuffle(dst[:chunks], seed+uint64(epoch))
	if chunk == 1 {
		return dst
	}
	// Widen from the back, so that no chunk number is overwritten unread.
	for i := chunks - 1; i >= 0; i-- {
		first := dst[i] * uint32(chunk)
		for j := range chunk {
			dst[i*chunk+j] = first + uint32(j)
		}
	}
	return dst
}

// LegacyOrder writes the legacy trainer's order of n instances in an epoch (the
// first is 0) to dst and returns it. Its length is a multiple of world: without
// keepLast the order is cut, with it instances from the start follow the end.
func LegacyOrder(dst []uint32, n, world int, keepLast bool, seed uint64, epoch int64) []uint32 {
	total := n / world * world // every rank gets as many
	if keepLast && n > 0 {
		total = (n + world - 1) / world * world
	}
	dst = sized(dst, max(total, n))
	for i := range n {
		dst[i] = uint32(i)
	}
	Shuffle(dst[:n], seed+uint64(epoch))
	for i := n; i < total; i++ {
		dst[i] = dst[i-n]
	}
	return dst[:total]
}

// PythonOrder is the order that Python's random.Random(seed).shuffle gives to
// list(range(n)). OLMo-core orders source files with it.
func PythonOrder(n int, seed int64) []int {
	if seed < 0 {
		seed = -seed // as Python does
	}
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	m := newMersenne(uint64(seed))
	for i := n - 1; i > 0; i-- {
		j := m.below(uint32(i) + 1)
		order[i], order[j] = order[j], order[i]
	}
	return order
}

// IndexFileName is the name that OLMo-core gives to the file of an epoch's
// order, raw uint32: for comparing runs.
func IndexFileName(n, chunk int, seed uint64, epoch int64) string {
	part := ""
	if chunk > 1 {
		part = fmt.Sprintf("_chunk%d", chunk)
	}
	return fmt.Sprintf("global_indices%s_dataset_size%d_epoch%d_seed%d_v1.npy", part, n, epoch, seed)
}

// sized returns a slice of length n, dst's memory where it has room.
func sized[T any](dst []T, n int) []T {
	if cap(dst) < n {
		return make([]T, n)
	}
	return dst[:n]
}

// schedule turns the number of a batch into instance numbers. One goroutine.
//
// Epochs are whole: a batch never spans two, and the instances that do not fill
// a last batch are left out of that epoch. Which ones they are changes with the
// order, so that over many epochs all are served.
type schedule struct {
	n, chunk, world int
	batch           int // instances of a global batch
	seed            uint64
	legacy          bool
	keepLast        bool
	fixed           []uint32 // evaluation: the same order each time, no epochs

	current []uint32 // the order of the epoch in use
	epoch   int64
	loaded  bool
}

// length is the number of instances an epoch serves before batching.
func (s *schedule) length() int {
	switch {
	case s.fixed != nil:
		return len(s.fixed)
	case !s.legacy:
		return s.n / s.chunk * s.chunk
	case s.keepLast && s.n > 0:
		return (s.n + s.world - 1) / s.world * s.world
	}
	return s.n / s.world * s.world
}

// batches is the number of batches in an epoch. The last is short with keepLast
// and in evaluation.
func (s *schedule) batches() int64 {
	if s.keepLast || s.fixed != nil {
		return int64((s.length() + s.batch - 1) / s.batch)
	}
	return int64(s.length() / s.batch)
}

// firstEpoch is how OLMo-core and the legacy trainer number epochs.
func (s *schedule) firstEpoch() int64 {
	if s.legacy {
		return 0
	}
	return 1
}

// row returns the instances of global batch k and its epoch. They are valid
// until the next call.
func (s *schedule) row(k int64) ([]uint32, int64, error) {
	per := s.batches()
	if k < 0 || s.fixed != nil && k >= per {
		return nil, 0, fmt.Errorf("data: batch %d, allowed 0 to %d", k, per-1)
	}
	epoch := s.firstEpoch() + k/per
	if !s.loaded || epoch != s.epoch {
		s.load(epoch)
	}
	first := int(k%per) * s.batch
	return s.current[first:min(first+s.batch, len(s.current))], epoch, nil
}

// load computes an epoch's order in the memory of the last one. It is a function
// of the epoch alone: neither the batches served before nor the epoch they came
// from have a part in it, which is what makes a resume exact.
func (s *schedule) load(epoch int64) {
	switch {
	case s.fixed != nil:
		s.current = s.fixed
	case s.legacy:
		s.current = LegacyOrder(s.current, s.n, s.world, s.keepLast, s.seed, epoch)
	default:
		s.current = CoreOrder(s.current, s.n, s.chunk, s.seed, epoch)
	}
	s.epoch, s.loaded = epoch, true
}
