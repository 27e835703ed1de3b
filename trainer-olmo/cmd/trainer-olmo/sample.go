package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/asteria-runtime/asteria/trainer-olmo/model"
	"github.com/asteria-runtime/asteria/trainer-olmo/tokenizer"
)

// sampler chooses tokens.
type sampler struct {
	tokens      int
	temperature float64
	topK        int
	rnd         *rand.Rand
	order       []int // scratch
	weights     []float64
}

// generate writes the prompt and its continuation, token by token, until the
// end-of-document token or the limit.
func (s *sampler) generate(ctx context.Context, m *model.Model[float32], tok tokenizer.Tokenizer, prompt string, out *bufio.Writer) error {
	ids := tok.Encode(nil, []byte(prompt))
	if len(ids) == 0 && tok.EOS() >= 0 {
		ids = append(ids, uint32(tok.EOS())) // what stands before a document in training
	}
	if len(ids) == 0 {
		return usagef("generate: --prompt is empty and the tokenizer has no end-of-document token to start from")
	}
	vocab := m.Config().VocabSize
	next := make([]int32, len(ids))
	for i, id := range ids {
		if int(id) >= vocab {
			return usagef("generate: the tokenizer's id %d is outside the model's vocabulary of %d", id, vocab)
		}
		next[i] = int32(id)
	}
	d, err := m.NewDecoder(len(ids) + max(s.tokens, 1))
	if err != nil {
		return err
	}
	out.WriteString(prompt)
	logits := make([]float32, vocab)
	for range s.tokens {
		if err := errors.Join(ctx.Err(), d.Append(next, logits)); err != nil {
			return err
		}
		id := s.choose(logits[:min(vocab, tok.VocabSize())])
		if id == tok.EOS() {
			return nil
		}
		text, err := tok.Decode(nil, []uint32{uint32(id)})
		if err != nil && !errors.Is(err, tokenizer.ErrUnknownID) {
			return err
		}
		out.Write(text)
		out.Flush()
		next = append(next[:0], int32(id))
	}
	return nil
}

// choose draws from softmax(logits/temperature) over the topK largest, or takes
// the largest at temperature 0. Padding rows beyond the vocabulary are not given.
func (s *sampler) choose(logits []float32) int {
	s.order = s.order[:0]
	for i := range logits {
		s.order = append(s.order, i)
	}
	slices.SortStableFunc(s.order, func(a, b int) int { return cmp.Compare(logits[b], logits[a]) })
	if s.temperature == 0 {
		return s.order[0]
	}
	kept := s.order
	if s.topK > 0 {
		kept = kept[:min(s.topK, len(kept))]
	}
	s.weights = s.weights[:0]
	total := 0.0
	for _, i := range kept {
		w := math.Exp(float64(logits[i]-logits[kept[0]]) / s.temperature)
		total += w
		s.weights = append(s.weights, w)
	}
	u := s.rnd.Float64() * total
	for k, w := range s.weights {
		if u -= w; u < 0 {
			return kept[k]
		}
	}
	return kept[len(kept)-1]
}
