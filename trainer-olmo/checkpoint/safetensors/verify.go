package safetensors

import (
	"fmt"
	"math"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/trainer-olmo/model"
)

// verifyTokens is the length of the sequence that Verify runs.
const verifyTokens = 16

// Verify imports a folder and compares it with the model it was exported from:
// configuration, weights and the logits of a fixed sequence, bit for bit. It is
// the check that a conversion needs and needs room for a second model. An export
// to a narrower type than T cannot pass.
func Verify[T gemm.Float](dir string, m *model.Model[T], eng *gemm.Engine) error {
	back, err := Import[T](dir, eng)
	if err != nil {
		return err
	}
	defer back.Close()
	want := back.Params()
	for i, p := range m.Params() {
		if i >= len(want) || want[i].Name != p.Name {
			return fmt.Errorf("safetensors: %s of the model is not in %s", p.Name, dir)
		}
		if at := differ(p.Value, want[i].Value); at >= 0 {
			return fmt.Errorf("safetensors: %s: element %d of %s is %g, the model has %g", dir, at, p.Name, want[i].Value[at], p.Value[at])
		}
	}
	return verifyLogits(dir, m, back)
}

func verifyLogits[T gemm.Float](dir string, m, back *model.Model[T]) error {
	vocab := m.Config().VocabSize
	b := model.Batch{Rows: 1, Seq: verifyTokens, Tokens: make([]int32, verifyTokens)}
	for i := range b.Tokens { // spread over the vocabulary; 7919 is prime
		b.Tokens[i] = int32((i*7919 + 1) % vocab)
	}
	x, y := make([]T, verifyTokens*vocab), make([]T, verifyTokens*vocab)
	if err := m.Logits(b, x); err != nil {
		return err
	}
	if err := back.Logits(b, y); err != nil {
		return err
	}
	if at := differ(x, y); at >= 0 {
		return fmt.Errorf("safetensors: %s: logit %d of position %d is %g, the model has %g: the configurations differ", dir, at%vocab, at/vocab, y[at], x[at])
	}
	return nil
}

// differ returns the first element in which x and y differ in their bits, -1 for
// none.
func differ[T gemm.Float](x, y []T) int {
	if len(x) != len(y) {
		return 0
	}
	for i := range x {
		if math.Float64bits(float64(x[i])) != math.Float64bits(float64(y[i])) {
			return i
		}
	}
	return -1
}
