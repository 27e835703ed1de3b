package main

import (
	"bufio"
	"context"
	"math/rand/v2"

	"github.com/spf13/pflag"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/trainer-olmo/config"
	"github.com/asteria-runtime/asteria/trainer-olmo/tokenizer"
)

func generateCommand() command {
	return command{
		name: "generate", usage: "RUN|CHECKPOINT|MODEL", min: 1, max: 1, run: runGenerate,
		summary: "continue a text with a model",
		help: `The tokenizer is --tokenizer, or that of the config.yaml that a run or checkpoint
carries. Equal seeds give equal texts.`,
		flags: func(f *pflag.FlagSet) {
			f.String("prompt", "", "text to continue; empty starts a new document")
			f.Int("tokens", 200, "tokens to add at most")
			f.Float64("temperature", 0.8, "0 takes the most likely token always")
			f.Int("top-k", 0, "choose among this many most likely tokens, 0 = all")
			f.Uint64("seed", 1, "seed of the choices")
			f.String("tokenizer", "", "byte, or the path of a tokenizer.json")
			f.Int("threads", 0, "computing threads, 0 = one per core")
		},
		examples: []string{
			`generate runs/demo/soap --prompt "func main() {"`,
			`generate OLMo-2-0425-1B --tokenizer tokenizer.json --prompt "The sea" --temperature 0`,
		},
	}
}

func runGenerate(ctx context.Context, e *env) error {
	s, err := samplerOf(e)
	if err != nil {
		return err
	}
	path := e.args[0]
	tok, err := tokenizerOf(e, path)
	if err != nil {
		return err
	}
	c := config.Default()
	c.Train.Threads, _ = e.flags.GetInt("threads")
	if c.Train.Threads < 0 {
		return usagef("generate: --threads %d: must not be negative", c.Train.Threads)
	}
	setProcs(c.ComputeThreads(), 0)
	eng := gemm.New(c.ComputeThreads())
	defer eng.Close()
	m, err := openModel(path, eng)
	if err != nil {
		return err
	}
	defer m.Close()
	out := bufio.NewWriter(e.out)
	prompt, _ := e.flags.GetString("prompt")
	if err := s.generate(ctx, m, tok, prompt, out); err != nil {
		return err
	}
	out.WriteByte('\n')
	return out.Flush()
}

// samplerOf reads and checks the flags of the choice.
func samplerOf(e *env) (*sampler, error) {
	s := &sampler{}
	s.tokens, _ = e.flags.GetInt("tokens")
	s.temperature, _ = e.flags.GetFloat64("temperature")
	s.topK, _ = e.flags.GetInt("top-k")
	seed, _ := e.flags.GetUint64("seed")
	s.rnd = rand.New(rand.NewPCG(seed, 0))
	switch {
	case s.tokens < 0:
		return nil, usagef("generate: --tokens %d: must not be negative", s.tokens)
	case !(s.temperature >= 0):
		return nil, usagef("generate: --temperature %g: must not be negative", s.temperature)
	case s.topK < 0:
		return nil, usagef("generate: --top-k %d: must not be negative", s.topK)
	}
	return s, nil
}

// tokenizerOf opens the tokenizer of the flag or of the run's configuration.
func tokenizerOf(e *env, path string) (tokenizer.Tokenizer, error) {
	name, _ := e.flags.GetString("tokenizer")
	if name == "" {
		file := configOf(path)
		if file == "" {
			return nil, usagef("generate: %s does not name its tokenizer; set --tokenizer", path)
		}
		c, err := load(file, nil)
		if err != nil {
			return nil, err
		}
		if name = c.Data.Tokenizer; name == "" {
			return nil, usagef("generate: %s does not name its tokenizer; set --tokenizer", path)
		}
	}
	tok, err := tokenizer.Open(name)
	return tok, notFound(err)
}
