package data

import "fmt"

// Note: the held-out part is the end of the data, not a sample of it: a sampled
// instance has neighbours from the same document in the training part, and its
// loss would measure memory as much as skill. The cut falls between documents
// where it can, for the same reason. Corpora are shuffled by file before they are
// written, so that their end is like the rest; a text file is taken as it comes.
//
// Both parts are cut into instances on their own. Moving the cut therefore moves
// only the instances of the held-out part, and those of the training part keep
// their numbers except for the dropped tail.

// split leaves in l.files the training part or the held-out part.
func (l *Loader) split(heldOut bool) error {
	total := int64(0)
	for i := range l.files {
		total += l.files[i].tokens
	}
	keep := l.cfg.HeldOutTokens
	if keep == 0 {
		keep = int64(l.cfg.HeldOut * float64(total))
	}
	if keep == 0 {
		return nil
	}
	if keep >= total {
		return fmt.Errorf("data: data.held_out_tokens = %d of %d tokens leaves nothing to train on", keep, total)
	}
	file, at, err := l.cut(total - keep)
	if err != nil {
		return err
	}
	if heldOut {
		l.files = l.files[file:]
		l.files[0].part.start = at
		return nil
	}
	l.files = l.files[:file+1]
	l.files[file].part.end = at
	if at == 0 {
		l.files = l.files[:file]
	}
	return nil
}

// cut finds the file and the token in it where the held-out part begins: the
// given position in all tokens, or the end of the last document before it in
// the same file, if it is not further away than the held-out part is long.
func (l *Loader) cut(position int64) (file int, at int64, err error) {
	total := int64(0)
	for i := range l.files {
		total += l.files[i].tokens
	}
	keep := total - position
	for position >= l.files[file].tokens {
		position -= l.files[file].tokens
		file++
	}
	if l.vocab.eos < 0 || position == 0 {
		return file, position, nil
	}
	at, err = l.lastEnd(&l.files[file], extent{max(0, position-keep), position})
	if at < 0 {
		at = position
	}
	return file, at, err
}

// lastEnd returns the position after the last EOS in an extent, or −1.
func (l *Loader) lastEnd(f *tokenFile, e extent) (int64, error) {
	last := int64(-1)
	err := l.reader.scan(f, e, l.vocab.natural, func(first int64, tokens []int32) {
		for i, id := range tokens {
			if id == int32(l.vocab.eos) {
				last = first + int64(i) + 1
			}
		}
	})
	return last, err
}
