package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"

	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// Digest is the SHA-256 of each group of sections, in hexadecimal.
type Digest struct {
	Weights   string `json:"weights"`
	Optimizer string `json:"optimizer"`
	Position  string `json:"position"`
	Runtime   string `json:"runtime"`
	// Total covers the first three: equal totals mean equal states. Runtime is
	// left out because it never changes a result.
	Total string `json:"total"`
}

// seal computes Total from the groups.
func (d Digest) seal() Digest {
	h := sha256.New()
	fmt.Fprintf(h, "weights %s\noptimizer %s\nposition %s\n", d.Weights, d.Optimizer, d.Position)
	d.Total = sum(h)
	return d
}

// String is one line for each group and the total, for people and scripts.
func (d Digest) String() string {
	return fmt.Sprintf("weights   %s\noptimizer %s\nposition  %s\nruntime   %s\ntotal     %s",
		d.Weights, d.Optimizer, d.Position, d.Runtime, d.Total)
}

func sum(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

// DigestState is the digest that a checkpoint of the state has. A group with a
// section that cannot be held has the error's text in place of its digest.
func DigestState(st State) Digest {
	d := Digest{Weights: digestSections(weightSections(st.Weights))}
	for _, g := range groups(&d, &st) {
		*g.digest = digestSections(g.sections)
	}
	return d.seal()
}

// digestSections is the digest of sections in their order.
func digestSections(sections []param.Section) string {
	h, buf := sha256.New(), make([]byte, copyBytes)
	for _, s := range sections {
		t, count := sectionType(s)
		hashHead(h, s.Name, t, count)
		// A hash takes every byte, so the only error is that of holding.
		if err := encode(s, buf, func(b []byte) error { h.Write(b); return nil }); err != nil {
			return err.Error()
		}
	}
	return sum(h)
}
