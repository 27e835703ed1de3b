package tokenizer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// check refuses what would change ids: an option that is off, or empty, passes.
func (m modelJSON) check() error {
	switch {
	case m.Type != "BPE" && m.Type != "":
		return fmt.Errorf("model.type %q: %w, allowed BPE", m.Type, ErrUnsupported)
	case m.Dropout != nil && *m.Dropout != 0:
		return fmt.Errorf("model.dropout %g: %w, allowed null", *m.Dropout, ErrUnsupported)
	case m.ContinuingSubwordPrefix != nil && *m.ContinuingSubwordPrefix != "":
		return fmt.Errorf("model.continuing_subword_prefix %q: %w, allowed null", *m.ContinuingSubwordPrefix, ErrUnsupported)
	case m.EndOfWordSuffix != nil && *m.EndOfWordSuffix != "":
		return fmt.Errorf("model.end_of_word_suffix %q: %w, allowed null", *m.EndOfWordSuffix, ErrUnsupported)
	case m.ByteFallback:
		return fmt.Errorf("model.byte_fallback true: %w", ErrUnsupported)
	case len(m.Vocab) == 0:
		return errors.New("model.vocab is empty")
	}
	return nil
}

// build fills the tables from the vocabulary, the merges and the added tokens.
func (t *tables) build(m modelJSON, added []addedJSON) error {
	if err := m.check(); err != nil {
		return err
	}
	if err := t.setSize(m, added); err != nil {
		return err
	}
	texts, err := t.vocabulary(m, added)
	if err != nil {
		return err
	}
	t.pack(texts)
	if err := t.setMerges(m); err != nil {
		return err
	}
	if m.IgnoreMerges {
		t.words = wordMap(m.Vocab)
	}
	return t.setAdded(added)
}

// maxGaps bounds the ids that a vocabulary may leave out, so that a file cannot
// ask for more memory than its own size justifies.
const maxGaps = 1 << 16

// setSize makes room for all ids.
func (t *tables) setSize(m modelJSON, added []addedJSON) error {
	largest := uint32(0)
	for _, id := range m.Vocab {
		largest = max(largest, id)
	}
	for _, a := range added {
		largest = max(largest, a.ID)
	}
	known := len(m.Vocab) + len(added)
	if int64(largest) >= int64(known)+maxGaps {
		return fmt.Errorf("id %d is too large for a vocabulary of %d tokens", largest, known)
	}
	t.size = int(largest) + 1
	t.defined = make([]bool, t.size)
	t.special = make([]bool, t.size)
	return nil
}

// vocabulary returns each id's bytes. A token of the model is written in the
// byte alphabet; one that is also an added token stands for its own text.
func (t *tables) vocabulary(m modelJSON, added []addedJSON) ([]string, error) {
	texts := make([]string, t.size)
	isAdded := make(map[string]bool, len(added))
	for _, a := range added {
		isAdded[a.Content] = true
	}
	alphabet := byteAlphabet()
	for token, id := range m.Vocab {
		if t.defined[id] {
			return nil, fmt.Errorf("model.vocab: %q and another token share id %d", token, id)
		}
		t.defined[id] = true
		text, ok := fromAlphabet(&alphabet, token)
		switch {
		case isAdded[token]:
			text = token
		case !ok:
			return nil, fmt.Errorf("model.vocab: %q (id %d) is not in the byte alphabet", token, id)
		}
		texts[id] = text
	}
	// Every byte must have a token, or some texts could not be encoded.
	for b := range 256 {
		id, ok := m.Vocab[string(byteRune(byte(b)))]
		if !ok && neverInUTF8(byte(b)) {
			t.lacks = true
			t.byteID[b] = noByte
			continue
		}
		if !ok {
			return nil, fmt.Errorf("model.vocab: no token for byte 0x%02x (%q)", b, byteRune(byte(b)))
		}
		t.byteID[b] = id
	}
	return texts, t.addTexts(texts, m.Vocab, added)
}

// addTexts enters the added tokens. One that the model's vocabulary has too must
// have the same id there.
func (t *tables) addTexts(texts []string, vocab map[string]uint32, added []addedJSON) error {
	for i, a := range added {
		id, inModel := vocab[a.Content]
		switch {
		case a.Content == "":
			return fmt.Errorf("added_tokens[%d] (id %d): empty content", i, a.ID)
		case inModel && id != a.ID:
			return fmt.Errorf("added_tokens[%d]: %q has id %d, model.vocab says %d", i, a.Content, a.ID, id)
		case !inModel && t.defined[a.ID]:
			return fmt.Errorf("added_tokens[%d]: %q and another token share id %d", i, a.Content, a.ID)
		}
		t.defined[a.ID] = true
		t.special[a.ID] = a.Special
		texts[a.ID] = a.Content
	}
	return nil
}

// pack puts all texts in one block of memory: decoding then reads two offsets and
// one stretch, and the garbage collector sees two slices, not 100,000 strings.
func (t *tables) pack(texts []string) {
	total := 0
	for _, s := range texts {
		total += len(s)
	}
	t.text = make([]byte, 0, total)
	t.offset = make([]uint32, 1, len(texts)+1)
	for _, s := range texts {
		t.text = append(t.text, s...)
		t.offset = append(t.offset, uint32(len(t.text)))
	}
}

// setMerges enters the merges; a merge's rank is its line.
func (t *tables) setMerges(m modelJSON) error {
	t.pairs = newPairTable(len(m.Merges))
	for rank, pair := range m.Merges {
		left, okL := m.Vocab[pair.left]
		right, okR := m.Vocab[pair.right]
		joined, okJ := m.Vocab[pair.left+pair.right]
		if !okL || !okR || !okJ {
			return fmt.Errorf("model.merges[%d]: %q and %q: a part or the joined token is not in model.vocab", rank, pair.left, pair.right)
		}
		if earlier, ok := t.pairs.insert(left, right, uint32(rank), joined); !ok {
			return fmt.Errorf("model.merges[%d]: %q and %q are also merge %d", rank, pair.left, pair.right, earlier)
		}
	}
	return nil
}

// wordMap is the vocabulary by bytes, which ignore_merges looks words up in.
func wordMap(vocab map[string]uint32) map[string]uint32 {
	alphabet := byteAlphabet()
	words := make(map[string]uint32, len(vocab))
	for token, id := range vocab {
		if text, ok := fromAlphabet(&alphabet, token); ok {
			words[text] = id
		}
	}
	return words
}

// setAdded builds the matchers and finds EOS and padding by name.
func (t *tables) setAdded(added []addedJSON) error {
	var raw, normal []addedToken
	ids := make(map[string]int, len(added))
	for i, a := range added {
		if a.SingleWord || a.LStrip || a.RStrip {
			return fmt.Errorf("added_tokens[%d] (%q): single_word, lstrip, rstrip: %w, allowed false", i, a.Content, ErrUnsupported)
		}
		ids[a.Content] = int(a.ID)
		token := addedToken{content: []byte(a.Content), id: a.ID}
		if !a.Normalized {
			raw = append(raw, token)
			continue
		}
		if t.nfc != nil {
			token.content = newBPE(t).appendNFC(nil, token.content)
		}
		normal = append(normal, token)
	}
	slices.SortStableFunc(raw, func(a, b addedToken) int { return cmp.Compare(a.id, b.id) })
	t.raw, t.normal = newMatcher(raw), newMatcher(normal)
	t.eos = firstOf(ids, "<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>", "<|eos|>")
	t.pad = firstOf(ids, "<|pad|>", "<|padding|>", "<pad>", "[PAD]")
	return nil
}

// firstOf is the id of the first name that exists, or None.
func firstOf(ids map[string]int, names ...string) int {
	for _, n := range names {
		if id, ok := ids[n]; ok {
			return id
		}
	}
	return None
}

// neverInUTF8 names the 13 bytes that no valid text holds; vocabularies learned
// from text may lack them.
func neverInUTF8(b byte) bool { return b == 0xc0 || b == 0xc1 || b >= 0xf5 }

// byteRune is GPT-2's printable stand-in for a byte: itself where Latin-1 shows
// it, and 256, 257, … in order for the 68 others: the controls and the space
// (33), DEL to the no-break space (34), the soft hyphen. A space reads Ġ.
func byteRune(b byte) rune {
	switch {
	case b <= ' ':
		return 256 + rune(b)
	case b >= 0x7f && b <= 0xa0:
		return 256 + 33 + rune(b-0x7f)
	case b == 0xad:
		return 256 + 33 + 34
	}
	return rune(b)
}

// byteAlphabet inverts byteRune; −1 where a rune stands for no byte.
func byteAlphabet() [324]int16 {
	var a [324]int16
	for i := range a {
		a[i] = -1
	}
	for b := range 256 {
		a[byteRune(byte(b))] = int16(b)
	}
	return a
}

// fromAlphabet turns a token as the file writes it into its bytes; false when a
// character stands for no byte.
func fromAlphabet(alphabet *[324]int16, token string) (string, bool) {
	out := make([]byte, 0, len(token))
	for _, r := range token {
		if int(r) >= len(alphabet) || alphabet[r] < 0 {
			return "", false
		}
		out = append(out, byte(alphabet[r]))
	}
	return string(out), true
}
