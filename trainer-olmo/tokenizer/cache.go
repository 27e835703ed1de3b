package tokenizer

import "encoding/binary"

// The word cache holds 2^14 words of at most 24 bytes and 8 ids: 1 MiB, which
// stays in a second-level cache. A new word takes the place of the old one. In a
// megabyte of English prose 91 to 92 words of a hundred are found.
const (
	cacheBits      = 14
	maxCachedBytes = 24
	maxCachedIDs   = 8
)

// wordCache is direct mapped: a word has one place, and needs no list to keep.
type wordCache [1 << cacheBits]cacheEntry

// cacheEntry fills one 64-byte line.
type cacheEntry struct {
	key    uint32 // low half of the word's hash
	length uint8  // bytes of the word; 0 = free
	count  uint8  // ids
	word   [maxCachedBytes]byte
	ids    [maxCachedIDs]uint32
}

// newWordCache is empty: a length of 0 matches no word.
func newWordCache() *wordCache { return new(wordCache) }

// slot returns the only place where word can be, and the key to look for there.
func (c *wordCache) slot(word []byte) (e *cacheEntry, key uint32) {
	h := hashWord(word)
	return &c[h>>(64-cacheBits)], uint32(h)
}

// matches compares the whole word: equal hashes prove nothing.
func (e *cacheEntry) matches(key uint32, word []byte) bool {
	return e.key == key && int(e.length) == len(word) && string(e.word[:e.length]) == string(word)
}

// store keeps the word unless it has too many ids or no bytes.
func (e *cacheEntry) store(key uint32, word []byte, ids []uint32) {
	if len(ids) > maxCachedIDs {
		return
	}
	e.key, e.length, e.count = key, uint8(len(word)), uint8(len(ids))
	copy(e.word[:], word)
	copy(e.ids[:], ids)
}

// hashWord mixes up to 24 bytes, eight at a time; overlapping reads cover the
// tail.
func hashWord(w []byte) uint64 {
	h := uint64(len(w)) * fibonacci
	for len(w) > 8 {
		h = (h ^ binary.LittleEndian.Uint64(w)) * fibonacci
		h ^= h >> 29
		w = w[8:]
	}
	h = (h ^ tail(w)) * fibonacci
	h ^= h >> 32
	return h * fibonacci
}

// tail packs the last 0 to 8 bytes of a word.
func tail(w []byte) uint64 {
	switch n := len(w); {
	case n == 8:
		return binary.LittleEndian.Uint64(w)
	case n >= 4:
		return uint64(binary.LittleEndian.Uint32(w)) | uint64(binary.LittleEndian.Uint32(w[n-4:]))<<32
	case n > 0:
		return uint64(w[0]) | uint64(w[n/2])<<8 | uint64(w[n-1])<<16
	}
	return 0
}
