package model_test

import (
	"fmt"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/trainer-olmo/model"
)

// A step of gradient descent lowers the loss of the batch it was computed on.
func Example() {
	eng := gemm.New(1)
	defer eng.Close()
	m, err := model.New[float32](model.Config{DModel: 16, NLayers: 2, NHeads: 2, HiddenSize: 32, VocabSize: 8}, eng)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Close()
	m.Init(1)
	batch := model.Batch{Rows: 1, Seq: 6, Tokens: []int32{1, 2, 3, 1, 2, 3}}
	before, _ := m.LossGrad(batch, model.LossOptions{}, nil)
	for _, p := range m.Params() {
		for i, g := range p.Grad {
			p.Value[i] -= 0.1 * g
		}
	}
	after, _ := m.Loss(batch, model.LossOptions{})
	fmt.Println(before.Labels, "targets, lower loss:", after.Loss < before.Loss)
	// Output: 5 targets, lower loss: true
}

func ExamplePreset() {
	c, err := model.Preset("OLMo-2-0425-1B")
	if err != nil {
		fmt.Println(err)
		return
	}
	total, nonEmbedding := c.ParamCount()
	fmt.Println(total, nonEmbedding)
	// Output: 1484916736 1279395840
}

// A decoder reads a prompt at once and then a token at a time.
func ExampleDecoder() {
	eng := gemm.New(1)
	defer eng.Close()
	m, _ := model.New[float32](model.Config{DModel: 16, NLayers: 2, NHeads: 2, HiddenSize: 32, VocabSize: 8}, eng)
	defer m.Close()
	m.Init(1)
	d, _ := m.NewDecoder(16)
	logits := make([]float32, 8)
	next := []int32{1, 2, 3}
	for d.Len() < 6 {
		if err := d.Append(next, logits); err != nil {
			fmt.Println(err)
			return
		}
		next = next[:1]
		for i, v := range logits {
			if v > logits[next[0]] {
				next[0] = int32(i)
			}
		}
	}
	fmt.Println(d.Len())
	// Output: 6
}
