package nvmepage

import (
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

// The checksum is the library's CRC-32C at every length around the pieces in which it is
// taken, in one go and in parts.
func TestChecksumIsCRC32C(t *testing.T) {
	b := make([]byte, 4*touchBytes+100)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(b)
	table := crc32.MakeTable(crc32.Castagnoli)
	for _, n := range []int{0, 1, 63, 64, 65, touchBytes - 1, touchBytes, touchBytes + 1, 2*touchBytes - 1, 2 * touchBytes, 2*touchBytes + 1, len(b)} {
		want := crc32.Checksum(b[:n], table)
		if got := checksum(b[:n]); got != want {
			t.Errorf("%d bytes: %#08x, want %#08x", n, got, want)
		}
		if got := updateSum(checksum(b[:n/3]), b[n/3:n]); got != want {
			t.Errorf("%d bytes in two parts: %#08x, want %#08x", n, got, want)
		}
	}
}

func BenchmarkChecksum(b *testing.B) {
	mem := make([]byte, 128<<20) // beyond the caches
	_, _ = rand.NewChaCha8([32]byte{}).Read(mem)
	const size = 4 << 20
	b.SetBytes(size)
	for i := 0; b.Loop(); i++ {
		checksum(mem[i*size%len(mem):][:size])
	}
}
