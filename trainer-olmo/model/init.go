package model

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// InitOptions choose the distribution of the initial weights. Norm weights are
// 1 in every scheme.
type InitOptions struct {
	// Init is the scheme: normal, mitchell, full_megatron, llama, llama_depth or
	// fan_in (see [Config.Std]). Default normal.
	Init string `yaml:"init_method"`
	// InitStd is the scheme's standard deviation. Default 0.02.
	InitStd float64 `yaml:"init_std"`
	// InitCutoff truncates at this many standard deviations; 0 is no truncation.
	// The embeddings of llama, llama_depth and fan_in are never truncated.
	InitCutoff float64 `yaml:"init_cutoff"`
	// EmbeddingInitStd replaces the scheme's standard deviation of the
	// embeddings when positive.
	EmbeddingInitStd float64 `yaml:"embedding_init_std"`
	// ScaleEmbeddingInit multiplies the standard deviation of the embeddings by
	// sqrt(d_model) in full_megatron.
	ScaleEmbeddingInit bool `yaml:"scale_emb_init"`
}

func (o InitOptions) resolved() InitOptions {
	o.Init = or(o.Init, "normal")
	o.InitStd = or(o.InitStd, 0.02)
	return o
}

func (o InitOptions) validate() error {
	var errs []error
	switch o.Init {
	case "normal", "mitchell", "full_megatron", "llama", "llama_depth", "fan_in":
	default:
		errs = append(errs, fmt.Errorf("model: init_method %q is not normal, mitchell, full_megatron, llama, llama_depth or fan_in", o.Init))
	}
	for _, f := range []struct {
		name string
		v    float64
	}{{"init_std", o.InitStd}, {"init_cutoff", o.InitCutoff}, {"embedding_init_std", o.EmbeddingInitStd}} {
		if !(f.v >= 0) || math.IsInf(f.v, 0) {
			errs = append(errs, fmt.Errorf("model: %s %g must be finite and not negative", f.name, f.v))
		}
	}
	return errors.Join(errs...)
}

// Std returns the standard deviation before truncation of a tensor's initial
// values and whether truncation applies. With s = InitStd, L layers, l the layer
// and n its width in:
//
//	               embeddings  q k v, gate  up            o, down       head
//	normal         s           s            s             s             s
//	mitchell       1/√d        1/√d         1/√d          1/√(2n(l+1))  1/√d
//	full_megatron  s           s            s             s/√(2L)       1/√d
//	llama          1           s            s/√(2L)       s/√(2L)       1/√d
//	llama_depth    1           s            s/√(2(l+1))   s/√(2(l+1))   1/√d
//	fan_in         1           1/√n         1/√n          1/√n          1/√d
func (c Config) Std(t Tensor) (std float64, truncated bool) {
	c = c.Resolved()
	if t.Role == param.Embedding {
		return c.embeddingStd()
	}
	d := 1 / math.Sqrt(float64(c.DModel))
	if t.Role == param.Head {
		if c.Init == "normal" {
			return c.InitStd, true
		}
		return d, true
	}
	return c.matrixStd(t, d), true
}

// embeddingStd is Std of the embeddings, tied or not.
func (c Config) embeddingStd() (std float64, truncated bool) {
	switch c.Init {
	case "llama", "llama_depth", "fan_in":
		std = 1
	case "mitchell":
		std, truncated = 1/math.Sqrt(float64(c.DModel)), true
	default:
		std, truncated = c.InitStd, true
		if c.Init == "full_megatron" && c.ScaleEmbeddingInit {
			std *= math.Sqrt(float64(c.DModel))
		}
	}
	if c.EmbeddingInitStd > 0 {
		std = c.EmbeddingInitStd
	}
	return std, truncated
}

// matrixStd is Std of a linear layer of a block; d is 1/sqrt(d_model).
func (c Config) matrixStd(t Tensor, d float64) float64 {
	out := strings.Contains(t.Name, "o_proj") || strings.Contains(t.Name, "down_proj")
	up := strings.Contains(t.Name, "up_proj")
	fanIn := float64(t.Shape[1])
	depth := float64(2 * (t.Layer + 1))
	switch c.Init {
	case "mitchell":
		if out {
			return 1 / math.Sqrt(fanIn*depth)
		}
		return d
	case "full_megatron":
		if out {
			return c.InitStd / math.Sqrt(float64(2*c.NLayers))
		}
	case "llama":
		if out || up {
			return c.InitStd / math.Sqrt(float64(2*c.NLayers))
		}
	case "llama_depth":
		if out || up {
			return c.InitStd / math.Sqrt(depth)
		}
	case "fan_in":
		return 1 / math.Sqrt(fanIn)
	}
	return c.InitStd
}

// initChunk is the number of elements that one random stream serves.
const initChunk = 1 << 15

// Init sets the parameters and clears the gradients. Elements [j*32768,
// (j+1)*32768) of the i-th parameter of [Model.Params] come in order from
// math/rand/v2's PCG seeded with (seed, i<<32 + j), one uniform draw each, by the
// inverse of the normal distribution function; a truncated normal draws from the
// middle of the uniform interval, as PyTorch does, and is not rescaled. So the
// weights depend on seed, shapes and scheme only.
func (m *Model[T]) Init(seed uint64) {
	clear(m.grads)
	t := initTask[T]{seed: seed}
	for i, p := range m.params {
		if p.Role == param.Norm {
			for j := range p.Value {
				p.Value[j] = 1
			}
			continue
		}
		std, truncated := m.cfg.Std(Tensor{Name: p.Name, Shape: p.Shape, Role: p.Role, Layer: p.Layer})
		t.std, t.low = std, 0
		if truncated && m.cfg.InitCutoff > 0 {
			t.low = 0.5 * math.Erfc(m.cfg.InitCutoff/math.Sqrt2)
		}
		t.index, t.dst = uint64(i), p.Value
		m.eng.Run((len(p.Value)+initChunk-1)/initChunk, &t)
	}
}

// initTask fills chunks of a tensor.
type initTask[T gemm.Float] struct {
	seed, index uint64
	std         float64
	low         float64 // probability below the cutoff
	dst         []T
}

func (t *initTask[T]) Do(chunk, _ int) {
	rng := rand.New(rand.NewPCG(t.seed, t.index<<32+uint64(chunk)))
	for i, end := chunk*initChunk, min((chunk+1)*initChunk, len(t.dst)); i < end; i++ {
		t.dst[i] = T(t.std * normal(rng.Float64(), t.low))
	}
}

// normal maps a uniform u in [0, 1) to a standard normal whose tails of
// probability low are cut.
func normal(u, low float64) float64 {
	u = max(u, 0x1p-54) // 0 has no finite image
	return math.Sqrt2 * math.Erfinv(2*(low+u*(1-2*low))-1)
}
