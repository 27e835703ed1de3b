package data

import (
	"fmt"
	"slices"
	"sort"
)

// piece is an extent of a numbered file.
type piece struct {
	file int
	extent
}

// instanceSet says of which tokens each instance is made. Chunks of files are
// computed from the files' sizes, since a data set can have billions of them;
// documents and packed documents depend on the content and are listed.
type instanceSet struct {
	seq  int64
	ends []int64 // number of instances up to and including each file; chunks only
	from []int64 // first token of each file's part; chunks only

	pieces []piece // listed kinds: all pieces
	first  []int   // listed kinds: instance i has pieces[first[i]:first[i+1]]
	padded bool    // rows may be shorter than seq
}

// fixedInstances cuts each part in chunks of target tokens and those in
// instances of seq; what is left of a part is dropped.
func fixedInstances(parts []extent, seq, target int64) *instanceSet {
	s := &instanceSet{seq: seq}
	total := int64(0)
	for _, p := range parts {
		total += p.length() / target * (target / seq)
		s.ends = append(s.ends, total)
		s.from = append(s.from, p.start)
	}
	return s
}

// count is the number of instances over all files.
func (s *instanceSet) count() int64 {
	if s.first != nil {
		return int64(len(s.first)) - 1
	}
	if len(s.ends) == 0 {
		return 0
	}
	return s.ends[len(s.ends)-1]
}

// of appends the pieces of instance i.
func (s *instanceSet) of(dst []piece, i int64) []piece {
	if s.first != nil {
		return append(dst, s.pieces[s.first[i]:s.first[i+1]]...)
	}
	file := sort.Search(len(s.ends), func(f int) bool { return s.ends[f] > i })
	if file > 0 {
		i -= s.ends[file-1]
	}
	start := s.from[file] + i*s.seq
	return append(dst, piece{file, extent{start, start + s.seq}})
}

// add appends one instance to a listed set.
func (s *instanceSet) add(pieces ...piece) {
	if s.first == nil {
		s.first = []int{0}
	}
	s.pieces = append(s.pieces, pieces...)
	s.first = append(s.first, len(s.pieces))
}

// instancesOf builds the set that a configuration asks for.
func (r *reader) instancesOf(cfg Config, files []tokenFile, v vocabulary) (*instanceSet, error) {
	seq := int64(cfg.SequenceLength)
	if cfg.kind() == KindFixed {
		parts := make([]extent, len(files))
		for i := range files {
			parts[i] = files[i].part
		}
		return fixedInstances(parts, seq, max(seq, int64(cfg.MaxTargetSequenceLength))), nil
	}
	if v.eos < 0 {
		return nil, fmt.Errorf("data: data.kind %s needs data.eos_token_id or a tokenizer with one", cfg.kind())
	}
	if v.pad < 0 {
		return nil, fmt.Errorf("data: data.kind %s needs data.pad_token_id or a tokenizer with one", cfg.kind())
	}
	if cfg.kind() == KindPadded {
		return r.paddedInstances(seq, files, v)
	}
	return r.packedInstances(cfg, files, v)
}

// paddedInstances makes one instance of each document, cut to seq tokens.
func (r *reader) paddedInstances(seq int64, files []tokenFile, v vocabulary) (*instanceSet, error) {
	s := &instanceSet{seq: seq, padded: true, first: []int{0}}
	for i := range files {
		docs, err := r.documentsFound(&files[i], v)
		if err != nil {
			return nil, err
		}
		for _, d := range docs {
			s.add(piece{i, extent{d.start, min(d.end, d.start+seq)}})
		}
	}
	return s, nil
}

// documentsFound is documents, where none is an error.
func (r *reader) documentsFound(f *tokenFile, v vocabulary) ([]extent, error) {
	docs, err := r.documents(f, v)
	if err == nil && len(docs) == 0 && f.part.length() > 0 {
		err = fmt.Errorf("data: %s: no document in %d tokens: eos_token_id %d does not occur", f.path, f.part.length(), v.eos)
	}
	return docs, err
}

// packedInstances packs the documents of each group of consecutive files.
// Positions in a group run over its files as if they were one.
func (r *reader) packedInstances(cfg Config, files []tokenFile, v vocabulary) (*instanceSet, error) {
	s := &instanceSet{seq: int64(cfg.SequenceLength), padded: true, first: []int{0}}
	for group := range slices.Chunk(indexRange(len(files)), max(cfg.SourceGroupSize, 1)) {
		var docs []extent
		var bases []int64
		base := int64(0)
		for _, i := range group {
			found, err := r.documentsFound(&files[i], v)
			if err != nil {
				return nil, err
			}
			for _, d := range found {
				docs = shorten(docs, extent{base + d.start, base + d.end}, s.seq, cfg.LongDocStrategy)
			}
			bases = append(bases, base)
			base += files[i].tokens
		}
		// No document crosses from one file into the next: each piece of the
		// packing lies in one.
		p := pack(docs, cfg.SequenceLength)
		for _, instance := range p.instances {
			s.add(locate(p.docs, instance, group, bases)...)
		}
	}
	return s, nil
}

// locate turns positions in a group into pieces of its files.
func locate(docs []extent, instance []int32, group []int, bases []int64) []piece {
	pieces := make([]piece, 0, len(instance))
	for _, d := range instance {
		e := docs[d]
		at := sort.Search(len(bases), func(i int) bool { return bases[i] > e.start }) - 1
		pieces = append(pieces, piece{group[at], extent{e.start - bases[at], e.end - bases[at]}})
	}
	return pieces
}

// indexRange is 0…n−1.
func indexRange(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}
