package data

import (
	"fmt"
	"slices"
)

// scanBlock is how many tokens are looked at at a time.
const scanBlock = 1 << 18

// scan calls visit for consecutive blocks of an extent, from its start on.
func (r *reader) scan(f *tokenFile, e extent, vocab int, visit func(first int64, tokens []int32)) error {
	buf := make([]int32, min(scanBlock, e.length()))
	for at := e.start; at < e.end; {
		n := min(scanBlock, e.end-at)
		if err := r.tokens(buf[:n], f, extent{at, at + n}, vocab); err != nil {
			return err
		}
		visit(at, buf[:n])
		at += n
	}
	return nil
}

// docFinder collects the documents of consecutive blocks. Tokens after the last
// end are no document: OLMo-core drops them from padded and packed instances,
// and this package does the same so that instances have the same numbers. A
// file's last document needs its EOS.
type docFinder struct {
	eos, bos int32 // bos −1 = none
	docs     []extent
	start    int64
	started  bool
	pending  bool // the last token was eos, and whether bos follows decides
	pendEnd  int64
}

// add looks at tokens that begin at position first; the first block's is the
// start of the first document.
func (d *docFinder) add(first int64, tokens []int32) {
	if !d.started {
		d.start, d.started = first, true
	}
	for i, id := range tokens {
		at := first + int64(i)
		if d.pending && id == d.bos {
			d.end(d.pendEnd)
		}
		d.pending = false
		if id != d.eos {
			continue
		}
		if d.bos < 0 {
			d.end(at + 1)
			continue
		}
		d.pending, d.pendEnd = true, at+1
	}
}

// end closes the current document; the next begins where it ends.
func (d *docFinder) end(at int64) {
	d.docs = append(d.docs, extent{d.start, at})
	d.start = at
}

// finish ends the last document where only the file's end follows its EOS.
func (d *docFinder) finish() []extent {
	if d.pending {
		d.end(d.pendEnd)
		d.pending = false
	}
	return d.docs
}

// documents lists the documents in the part of a file that is served.
func (r *reader) documents(f *tokenFile, v vocabulary) ([]extent, error) {
	d := docFinder{eos: int32(v.eos), bos: int32(v.bos)}
	if err := r.scan(f, f.part, v.natural, d.add); err != nil {
		return nil, err
	}
	return d.finish(), nil
}

// Limits of the check auto, in bytes.
const (
	autoFull = 4 << 30 // data sets up to this are read whole
	autoHead = 1 << 20 // of larger ones, each file's start
)

// otherEOS are the ends of documents of the official OLMo tokenizers: finding
// one of them instead of the configured id explains what happened.
var otherEOS = []int32{0, 50279, 100257}

// checkTokens reads token files for ids out of range and for signs of a wrong
// width or EOS. It returns warnings. Reading everything costs about a second for
// each gigabyte, once; a batch with a bad id, found after days, costs the days.
func (r *reader) checkTokens(files []tokenFile, v vocabulary, how string) ([]string, error) {
	total := int64(0)
	for i := range files {
		total += files[i].tokens * int64(files[i].width)
	}
	var warnings []string
	for i := range files {
		f := &files[i]
		e := extent{0, f.tokens}
		switch {
		case how == CheckNone:
			continue
		case how != CheckFull && total > autoFull:
			e.end = min(e.end, autoHead/int64(f.width))
		}
		w, err := r.checkFile(f, e, v)
		if err != nil {
			return nil, err
		}
		warnings = append(warnings, w...)
	}
	return warnings, nil
}

// tally is what a check counts in one file.
type tally struct {
	eos    int64
	others [3]int64 // of otherEOS
	odd    int64    // odd positions above 3: none in wide ids read as narrow ones
	even   int64
	n      int64
}

// add counts one block. Blocks have an even number of tokens, except the last, so
// that a position's parity in its block is its parity in the file.
func (t *tally) add(tokens []int32, eos int32) {
	for i, id := range tokens {
		if id == eos {
			t.eos++
		}
		if k := slices.Index(otherEOS, id); k >= 0 {
			t.others[k]++
		}
		if id > 3 {
			if i%2 == 1 {
				t.odd++
			} else {
				t.even++
			}
		}
	}
	t.n += int64(len(tokens))
}

// minWidthEvidence is how many tokens a file needs before their pattern says
// something about the width.
const minWidthEvidence = 64

// checkFile reads an extent of one file. Ids out of range are errors, as are files
// whose every second id is tiny, which is how 32-bit ids look when they are read
// as 16-bit ones and all halves happen to be in range. A missing EOS is a warning:
// a file may hold one endless document.
func (r *reader) checkFile(f *tokenFile, e extent, v vocabulary) ([]string, error) {
	var t tally
	err := r.scan(f, e, v.natural, func(_ int64, tokens []int32) { t.add(tokens, int32(v.eos)) })
	if err != nil {
		return nil, err
	}
	if f.meta == nil && f.width < 4 && t.n >= minWidthEvidence && t.odd == 0 && t.even > t.n/4 {
		return nil, fmt.Errorf("data: %s: every second of %d ids is 3 or less: these look like ids of %s, read as %s; set data.dtype", f.path, t.n, 2*f.width, f.width)
	}
	if v.eos < 0 || t.eos > 0 || t.n == 0 {
		return nil, nil
	}
	for i, n := range t.others {
		if n > 0 && int(otherEOS[i]) != v.eos {
			return []string{fmt.Sprintf("%s: eos_token_id %d is not among %d tokens, but %d is, %d times: the end of documents of another OLMo tokenizer", f.path, v.eos, t.n, otherEOS[i], n)}, nil
		}
	}
	return []string{fmt.Sprintf("%s: eos_token_id %d is not among %d tokens: no document ends are found", f.path, v.eos, t.n)}, nil
}
