package model

import (
	"fmt"

	"github.com/asteria-runtime/asteria/gemm"
)

// decodeChunk is the number of tokens that a decoder reads at a time; a longer
// prompt is cut.
const decodeChunk = 128

// Decoder continues one sequence token by token. It keeps the rotated keys and
// the values of all layers, so that a token costs one pass over the weights and
// the keys it sees. It computes with its model's current parameters and must not
// be used beside another call on the model.
type Decoder[T gemm.Float] struct {
	m   *Model[T]
	w   *work[T]
	len int
}

// NewDecoder makes room for a sequence of at most room tokens:
// 2*room*n_kv_heads*head_dim elements a layer.
func (m *Model[T]) NewDecoder(room int) (*Decoder[T], error) {
	if room < 1 {
		return nil, fmt.Errorf("model: decoder for %d tokens", room)
	}
	c := m.cfg
	w := newWork[T](c, len(m.windows), plan{rows: 1, seq: min(decodeChunk, room), capacity: room, decode: true}, &arena{})
	for l := range w.layers {
		w.layers[l].k, w.layers[l].v = make([]T, room*c.kvWidth()), make([]T, room*c.kvWidth())
	}
	for _, worker := range m.workers {
		worker.att.reserve(room, c.HeadDim)
	}
	for _, r := range m.ropes {
		r.grow(room)
	}
	starts := make([]int32, room)
	for i, window := range m.windows {
		visibleFrom(w.lo[i], starts, room, window)
	}
	return &Decoder[T]{m: m, w: w}, nil
}

// Len is the number of tokens read so far.
func (d *Decoder[T]) Len() int { return d.len }

// Room is the number of tokens that fit.
func (d *Decoder[T]) Room() int { return d.w.capacity }

// Reset starts a new sequence.
func (d *Decoder[T]) Reset() { d.len = 0 }

// Append reads tokens and sets logits, of VocabSize elements, to those of the
// token that follows the last one.
func (d *Decoder[T]) Append(tokens []int32, logits []T) error {
	c := &d.m.cfg
	switch {
	case len(tokens) == 0:
		return fmt.Errorf("model: no tokens to append")
	case len(logits) != c.VocabSize:
		return fmt.Errorf("model: room for %d logits, want %d", len(logits), c.VocabSize)
	case d.len+len(tokens) > d.w.capacity:
		return fmt.Errorf("model: %d tokens after %d do not fit a decoder of %d", len(tokens), d.len, d.w.capacity)
	}
	if err := checkTokens(tokens, c.VocabSize); err != nil {
		return err
	}
	for len(tokens) > 0 {
		n := min(decodeChunk, len(tokens))
		d.w.seq, d.w.first = n, d.len
		d.m.run.forward(d.w, tokens[:n], nil)
		d.len += n
		tokens = tokens[n:]
	}
	last := d.w.normed[(d.w.seq-1)*c.DModel : d.w.seq*c.DModel]
	d.m.run.project(1, logits, last, d.m.out.value, 0)
	return nil
}
