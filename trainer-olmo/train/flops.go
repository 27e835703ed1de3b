package train

import "github.com/asteria-runtime/asteria/trainer-olmo/model"

// flopsPerToken is the arithmetic of training on one token as OLMo-core counts
// it: 6 for each parameter of a layer, the final norm and the head, and
// 12*width*min(window, T) for the attention of each layer; neither the embedding
// lookup nor the causal half is taken off.
func flopsPerToken(c model.Config, seq int) float64 {
	c = c.Resolved()
	params := 0.0
	for _, t := range c.Shapes() {
		n := 1.0
		for _, d := range t.Shape {
			n *= float64(d)
		}
		if t.Name == "model.embed_tokens.weight" && !c.TieWordEmbeddings {
			continue
		}
		params += n
	}
	attention := 0.0
	for layer := range c.NLayers {
		attention += 12 * float64(c.NHeads*c.HeadDim) * float64(min(window(c, layer), seq))
	}
	return 6*params + attention
}

// window is how many tokens a layer sees at most.
func window(c model.Config, layer int) int {
	w := model.FullAttention
	if n := len(c.SlidingWindow); n > 0 {
		w = c.SlidingWindow[layer%n]
	}
	if w == model.FullAttention || layer == c.NLayers-1 && !c.SlidingLastLayer {
		return int(^uint(0) >> 1)
	}
	return w
}
