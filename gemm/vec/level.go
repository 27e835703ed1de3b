package vec

// isa names an instruction set. Its order is that of preference.
type isa uint8

const (
	portable isa = iota
	narrow       // AVX2 with 8 float32 lanes, or NEON with 4
	wide         // AVX-512: 16 float32 lanes
)

func (l isa) String() string { return levelNames[l] }

// Kernels names the instruction set in use: avx512, avx2, neon or portable. It is
// for reports; results do not depend on it.
func Kernels() string { return level().String() }
