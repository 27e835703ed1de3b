package data

import (
	"math/rand/v2"
	"testing"
)

func TestPackingKeepsEveryDocumentAndFits(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 3))
		limit := 1 << (1 + r.IntN(7))
		var docs []extent
		at := int64(0)
		total := int64(0)
		for range r.IntN(200) {
			n := 1 + r.Int64N(int64(limit))
			docs = append(docs, extent{at, at + n})
			at += n
			total += n
		}
		p := pack(docs, limit)
		seen := map[int32]bool{}
		for _, instance := range p.instances {
			used := int64(0)
			for _, d := range instance {
				if seen[d] {
					t.Fatalf("seed %d: document %d twice", seed, d)
				}
				seen[d] = true
				used += p.docs[d].length()
			}
			if used > int64(limit) || used == 0 {
				t.Fatalf("seed %d: an instance of %d tokens, limit %d", seed, used, limit)
			}
		}
		if len(seen) != len(docs) || p.tokens != total {
			t.Fatalf("seed %d: %d of %d documents, %d of %d tokens", seed, len(seen), len(docs), p.tokens, total)
		}
	}
}

// TestPackingFitsBest: no document could have gone to an instance with less
// space at the time it was placed.
func TestPackingFitsBest(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 4))
		const limit = 32
		var docs []extent
		for range 60 {
			docs = append(docs, extent{0, 1 + r.Int64N(limit)})
		}
		p := pack(docs, limit)
		home := make([]int, len(docs))
		for b, instance := range p.instances {
			for _, d := range instance {
				home[d] = b
			}
		}
		free := make([]int64, len(p.instances))
		for b := range free {
			free[b] = limit
		}
		for d, b := range home {
			n := p.docs[d].length()
			for other := range free {
				if free[other] >= n && free[other] < free[b] {
					t.Fatalf("seed %d: document %d of %d tokens went to space %d, though %d was there", seed, d, n, free[b], free[other])
				}
			}
			free[b] -= n
		}
	}
}
