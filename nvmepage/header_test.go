package nvmepage

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestHeaderRoundTripAndEveryFlippedBitIsSeen(t *testing.T) {
	h := header{Store: 1 << 60, ID: 77, Version: 12345, Length: 28824000, Align: 4096, CRC: 0xdeadbeef, Off: 1 << 33, Paths: 3}
	page := make([]byte, 4096)
	h.encode(page)
	if got, err := decodeHeader(page); err != nil || got != h {
		t.Fatalf("%+v, %v", got, err)
	}
	for bit := range headerSize * 8 {
		page[bit/8] ^= 1 << (bit % 8)
		if got, err := decodeHeader(page); err == nil {
			t.Errorf("bit %d flipped: decoded %+v", bit, got)
		}
		page[bit/8] ^= 1 << (bit % 8)
	}
}

func FuzzDecodeHeader(f *testing.F) {
	page := make([]byte, headerSize)
	header{Store: 1, ID: 2, Version: 3, Length: 4, Align: 512, CRC: 5, Off: 1024, Paths: 1}.encode(page)
	f.Add(page)
	f.Add([]byte(headerMagic))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := decodeHeader(data)
		if err != nil {
			return
		}
		if h.Length <= 0 || h.extent() <= h.Length || h.extent()%int64(h.Align) != 0 {
			t.Fatalf("accepted %+v", h)
		}
		again := make([]byte, headerSize)
		h.encode(again)
		if got, err := decodeHeader(again); err != nil || got != h {
			t.Fatalf("%+v encodes to %+v, %v", h, got, err)
		}
	})
}

// TestExtentsNeverOverlapAndComeBack takes and gives at random and checks that
// ranges in use are disjoint and that everything merges in the end.
func TestExtentsNeverOverlapAndComeBack(t *testing.T) {
	for seed := range uint64(50) {
		g := rand.New(rand.NewPCG(seed, 9))
		var e extents
		var used []extent
		for range 200 {
			if len(used) > 0 && g.IntN(2) == 0 {
				i := g.IntN(len(used))
				e.give(used[i].off, used[i].n)
				used = slices.Delete(used, i, i+1)
				continue
			}
			n := 1 + g.Int64N(100)
			off, ok := e.take(n)
			if !ok {
				e.grow(e.need(n))
				if off, ok = e.take(n); !ok {
					t.Fatalf("seed %d: no room for %d after growing: %+v", seed, n, e)
				}
			}
			for _, u := range used {
				if off < u.off+u.n && u.off < off+n {
					t.Fatalf("seed %d: [%d,%d) overlaps [%d,%d)", seed, off, off+n, u.off, u.off+u.n)
				}
			}
			used = append(used, extent{off, n})
		}
		for _, u := range used {
			e.give(u.off, u.n)
		}
		if len(e.free) != 1 || e.free[0] != (extent{0, e.size}) {
			t.Fatalf("seed %d: %+v after everything came back", seed, e)
		}
	}
}

func FuzzDropPage(f *testing.F) {
	page := make([]byte, 512)
	binary.LittleEndian.PutUint32(page[24:], 3)
	sealDrops(page, 7)
	f.Add(page)
	f.Add([]byte(dropMagic))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, n, ok := checkDrops(data, 7)
		if ok && dropHead+n*dropRecord > len(data) {
			t.Fatalf("%d records in %d bytes", n, len(data))
		}
	})
}
