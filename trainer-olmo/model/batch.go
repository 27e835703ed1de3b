package model

import "fmt"

// Batch is a micro-batch of token sequences.
type Batch struct {
	// Tokens holds Rows sequences of Seq ids each, one after the other.
	Tokens []int32
	// Rows is the number of sequences.
	Rows int
	// Seq is the number of tokens in each sequence.
	Seq int
	// LabelMask, of the length of Tokens, drops token t as a target when false;
	// the token is still read. nil keeps all.
	LabelMask []bool
	// InstanceMask, of length Rows, drops all targets of a sequence when false.
	// nil keeps all.
	InstanceMask []bool
	// DocLens lists for each row the lengths of its documents; attention does not
	// cross their borders. What the lengths leave over is one more document. nil
	// is no document mask. Targets across a border count.
	DocLens [][]int32
}

// ignored marks a position without a target.
const ignored = -1

// label returns the target of position t of a row, the next token, or ignored.
// Masks apply to the target's own position.
func (b *Batch) label(row, t int) int {
	if t+1 >= b.Seq || (b.InstanceMask != nil && !b.InstanceMask[row]) {
		return ignored
	}
	i := row*b.Seq + t + 1
	if b.LabelMask != nil && !b.LabelMask[i] {
		return ignored
	}
	return int(b.Tokens[i])
}

// Labels counts the positions that have a target.
func (b *Batch) Labels() int {
	n := 0
	for row := range b.Rows {
		for t := range b.Seq {
			if b.label(row, t) != ignored {
				n++
			}
		}
	}
	return n
}

// MaskedInstances counts the rows that InstanceMask drops.
func (b *Batch) MaskedInstances() int {
	n := 0
	for _, keep := range b.InstanceMask {
		if !keep {
			n++
		}
	}
	return n
}

// Divisor is what the sums of a batch are divided by. OLMo-core divides by the
// targets plus Seq for every masked instance, the legacy trainer by Rows*Seq
// whatever is masked.
func (b *Batch) Divisor(legacy bool) float64 {
	if legacy {
		return float64(b.Rows * b.Seq)
	}
	return float64(b.Labels() + b.MaskedInstances()*b.Seq)
}

// check reports the first fault.
func (b *Batch) check(vocab int) error {
	if b.Rows < 1 || b.Seq < 1 || len(b.Tokens) != b.Rows*b.Seq {
		return fmt.Errorf("model: batch of %d rows of %d has %d tokens", b.Rows, b.Seq, len(b.Tokens))
	}
	if b.LabelMask != nil && len(b.LabelMask) != len(b.Tokens) {
		return fmt.Errorf("model: label mask has %d elements for %d tokens", len(b.LabelMask), len(b.Tokens))
	}
	if b.InstanceMask != nil && len(b.InstanceMask) != b.Rows {
		return fmt.Errorf("model: instance mask has %d elements for %d rows", len(b.InstanceMask), b.Rows)
	}
	if err := b.checkDocs(); err != nil {
		return err
	}
	return checkTokens(b.Tokens, vocab)
}

func (b *Batch) checkDocs() error {
	if b.DocLens == nil {
		return nil
	}
	if len(b.DocLens) != b.Rows {
		return fmt.Errorf("model: document lengths for %d rows, want %d", len(b.DocLens), b.Rows)
	}
	for row, lens := range b.DocLens {
		total := 0
		for _, n := range lens {
			if n < 0 {
				return fmt.Errorf("model: row %d has a document of length %d", row, n)
			}
			total += int(n)
		}
		if total > b.Seq {
			return fmt.Errorf("model: documents of row %d have %d tokens, more than %d", row, total, b.Seq)
		}
	}
	return nil
}

func checkTokens(tokens []int32, vocab int) error {
	for i, id := range tokens {
		if id < 0 || int(id) >= vocab {
			return fmt.Errorf("model: token %d at position %d is not in [0, %d)", id, i, vocab)
		}
	}
	return nil
}

// docStarts sets dst[i] to the first position of the document of token i within
// its row.
func (b *Batch) docStarts(dst []int32) {
	clear(dst[:b.Rows*b.Seq])
	if b.DocLens == nil {
		return
	}
	for row, lens := range b.DocLens {
		starts := dst[row*b.Seq : (row+1)*b.Seq]
		at := 0
		for _, n := range lens {
			for i := range int(n) {
				starts[at+i] = int32(at)
			}
			at += int(n)
		}
		for i := at; i < b.Seq; i++ {
			starts[i] = int32(at)
		}
	}
}
