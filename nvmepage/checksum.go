package nvmepage

import "hash/crc32"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// touchBytes is how far memory is touched ahead of its checksum. The library's CRC goes
// through three places at once, in which a processor does not see that it will need
// what follows: out of memory it runs at half of what this gives, out of the cache at
// several times as much.
const touchBytes = 64 << 10

func checksum(b []byte) uint32 { return updateSum(0, b) }

func updateSum(sum uint32, b []byte) uint32 {
	for len(b) > touchBytes {
		touch(b[touchBytes:min(2*touchBytes, len(b))])
		sum = crc32.Update(sum, castagnoli, b[:touchBytes])
		b = b[touchBytes:]
	}
	return crc32.Update(sum, castagnoli, b)
}

// touch reads a byte of every line, so that they come into the cache together.
//
//go:noinline
func touch(b []byte) (x byte) {
	for i := 0; i < len(b); i += 64 {
		x ^= b[i]
	}
	return x
}
