package tokenizer

import (
	"bytes"
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	gocmp "github.com/google/go-cmp/cmp"
)

func TestPairTableIsAMap(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 10))
		n := 1 + r.IntN(500)
		table := newPairTable(n)
		want := map[[2]uint32]pairSlot{}
		for rank := range uint32(n) {
			k := [2]uint32{r.Uint32N(40), r.Uint32N(40)}
			earlier, ok := table.insert(k[0], k[1], rank, rank+7)
			old, had := want[k]
			if ok == had || had && earlier != old.rank {
				t.Fatalf("seed %d: insert %v: %d, %t", seed, k, earlier, ok)
			}
			if ok {
				want[k] = pairSlot{rank: rank, id: rank + 7}
			}
		}
		for a := range uint32(41) {
			for b := range uint32(41) {
				rank, id := table.lookup(a, b)
				s, ok := want[[2]uint32{a, b}]
				if ok && (rank != s.rank || id != s.id) || !ok && rank != noRank {
					t.Fatalf("seed %d: lookup %d %d gives %d, %d; want %+v, %t", seed, a, b, rank, id, s, ok)
				}
			}
		}
	}
}

// naiveFind is the definition: the leftmost place where any token matches, and
// of the tokens there the longest.
func naiveFind(tokens []addedToken, text []byte) (match, bool) {
	for i := range text {
		best := -1
		for j, t := range tokens {
			if bytes.HasPrefix(text[i:], t.content) && (best < 0 || len(t.content) > len(tokens[best].content)) {
				best = j
			}
		}
		if best >= 0 {
			return match{i, i + len(tokens[best].content), tokens[best].id}, true
		}
	}
	return match{}, false
}

func TestMatcherAgreesWithTheDefinition(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 11))
		word := func(n int) []byte {
			w := make([]byte, n)
			for i := range w {
				w[i] = "ab\xff"[r.IntN(3)]
			}
			return w
		}
		var tokens []addedToken
		seen := map[string]bool{}
		for id := range uint32(r.IntN(6)) {
			w := word(1 + r.IntN(5))
			if !seen[string(w)] {
				tokens = append(tokens, addedToken{w, id})
				seen[string(w)] = true
			}
		}
		m := newMatcher(tokens)
		for range 20 {
			text := word(r.IntN(20))
			want, wantOK := naiveFind(tokens, text)
			got, ok := m.find(text)
			if got != want || ok != wantOK {
				t.Fatalf("seed %d: %q in %q: %+v %t, want %+v %t", seed, tokens, text, got, ok, want, wantOK)
			}
		}
	}
}

func TestHeapGivesTheLeastFirst(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 12))
		var m merger
		var in []uint64
		for range r.IntN(100) {
			v := r.Uint64N(50)
			in = append(in, v)
			m.push(v)
		}
		slices.Sort(in)
		for i, want := range in {
			if got := m.pop(); got != want {
				t.Fatalf("seed %d: value %d is %d, want %d", seed, i, got, want)
			}
		}
		if len(m.heap) != 0 {
			t.Fatal("values are left")
		}
	}
}

// TestClassesAreUnicodes goes through all runes. The package unicode of a later
// Go release knows more letters; it never knows fewer.
func TestClassesAreUnicodes(t *testing.T) {
	c := newClassTable()
	newer := func(r rune) bool {
		return extensionI(r) || slices.ContainsFunc(since15[:], func(x struct {
			lo, hi uint32
			k      class
		}) bool {
			return uint32(r) >= x.lo && uint32(r) <= x.hi
		})
	}
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if !utf8.ValidRune(r) || newer(r) {
			continue
		}
		want := other
		switch {
		case r == '\n' || r == '\r':
			want = newline
		case unicode.Is(unicode.White_Space, r):
			want = space
		case unicode.IsLetter(r):
			want = letter
		case unicode.IsNumber(r):
			want = number
		}
		text := []byte(string(r))
		if got, n := c.at(text); got != want || n != len(text) {
			t.Fatalf("U+%04X: class %d of %d bytes, want %d of %d", r, got, n, want, len(text))
		}
	}
}

func TestByteAlphabetIsOneToOne(t *testing.T) {
	alphabet := byteAlphabet()
	seen := map[rune]bool{}
	for b := range 256 {
		r := byteRune(byte(b))
		if seen[r] || !unicode.IsPrint(r) || alphabet[r] != int16(b) {
			t.Errorf("byte %#02x is written %q, which reads back as %d", b, r, alphabet[r])
		}
		seen[r] = true
	}
	if _, ok := fromAlphabet(&alphabet, "a b"); ok {
		t.Error("a space stands for no byte")
	}
	if text, ok := fromAlphabet(&alphabet, "Ġa"); !ok || text != " a" {
		t.Errorf("Ġa reads back as %q", text)
	}
}

// TestWordsWithEqualSlotsDoNotMix drives many words through a cache of few
// distinct places.
func TestWordsWithEqualSlotsDoNotMix(t *testing.T) {
	var cache wordCache
	first, _ := cache.slot([]byte("first"))
	places := 0
	for i := range 1 << 18 {
		word := []byte{'w', byte(i), byte(i >> 8), byte(i >> 16)}
		e, key := cache.slot(word)
		if e != first {
			continue
		}
		places++
		if e.matches(key, word) {
			t.Fatalf("%q is there before it was stored", word)
		}
		e.store(key, word, []uint32{uint32(i)})
		if !e.matches(key, word) || e.ids[0] != uint32(i) {
			t.Fatalf("%q is not there after it was stored", word)
		}
	}
	if places < 2 {
		t.Errorf("only %d words fell on one place; the test shows nothing", places)
	}
}

func TestLongWordsAndManyIDsAreNotCached(t *testing.T) {
	tok := synthetic{preTokenizer: plainStage}.load(t)
	for _, n := range []int{1, maxCachedIDs, maxCachedIDs + 1, maxCachedBytes, maxCachedBytes + 1, 3 * maxCachedBytes} {
		word := []byte(strings.Repeat("x", n))
		for range 2 {
			if got := tok.Encode(nil, word); len(got) != n || got[n-1] != 'x' {
				t.Errorf("%d bytes: %v", n, got)
			}
		}
	}
}

func TestHashSpreadsWords(t *testing.T) {
	seen := map[uint64]string{}
	for n := range 25 {
		for bit := range 8 * n {
			word := make([]byte, n)
			word[bit/8] |= 1 << (bit % 8)
			if old, ok := seen[hashWord(word)]; ok {
				t.Fatalf("%q and %q have the same hash", old, word)
			}
			seen[hashWord(word)] = string(word)
		}
	}
}

// TestEncodingIsTheSameInPieces: a text cut where a word ends and no added token
// is near gives the ids of its parts.
func TestEncodingIsTheSameInPieces(t *testing.T) {
	tok := tiny().load(t)
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 13))
		a, b := randomText(r, 10)+"\n", "x"+randomText(r, 10)
		whole := tok.Encode(nil, []byte(a+b))
		parts := tok.Encode(tok.Encode(nil, []byte(a)), []byte(b))
		if !gocmp.Equal(whole, parts) {
			t.Fatalf("seed %d: %q + %q: %v, want %v", seed, a, b, parts, whole)
		}
	}
}

func TestEveryIDDecodes(t *testing.T) {
	tok := tiny().load(t)
	total := 0
	for id := range uint32(tok.VocabSize()) {
		b, ok := tok.Token(id)
		one, err := tok.Decode(nil, []uint32{id})
		if ok != (err == nil) || ok && !bytes.Equal(b, one) {
			t.Errorf("id %d: %q %t, %q %v", id, b, ok, one, err)
		}
		if ok {
			total++
		}
	}
	if want := 256 + len(english) + 4; total != want {
		t.Errorf("%d ids name tokens, want %d", total, want)
	}
}

func TestMarksAreOrderedStably(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 14))
		marks := make([]mark, r.IntN(20))
		for i := range marks {
			marks[i] = mark{rune(i), uint8(r.IntN(4))}
		}
		want := slices.Clone(marks)
		for lo := 0; lo < len(want); lo++ {
			hi := lo
			for hi < len(want) && want[hi].class != 0 {
				hi++
			}
			slices.SortStableFunc(want[lo:hi], func(a, b mark) int { return cmp.Compare(a.class, b.class) })
			lo = hi
		}
		orderMarks(marks)
		if !slices.Equal(marks, want) {
			t.Fatalf("seed %d: %v, want %v", seed, marks, want)
		}
	}
}
