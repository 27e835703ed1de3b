package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/trainer-olmo/checkpoint"
	"github.com/asteria-runtime/asteria/trainer-olmo/checkpoint/safetensors"
	"github.com/asteria-runtime/asteria/trainer-olmo/config"
	"github.com/asteria-runtime/asteria/trainer-olmo/plan"
	"github.com/asteria-runtime/asteria/trainer-olmo/tokenizer"
)

func exportCommand() command {
	return command{
		name: "export", usage: "RUN|CHECKPOINT|MODEL FOLDER", min: 2, max: 2, run: runExport,
		summary: "write a model folder in Hugging Face's form",
		help: `FOLDER gets config.json and model.safetensors, or shards with an index. An export
in float32 is read back and its weights and logits are compared bit for bit.`,
		flags: func(f *pflag.FlagSet) {
			f.String("dtype", "F32", "type in the file: F32, BF16 or F64")
			f.String("max-shard", "0", "largest file, such as 5GB, 0 = one file")
			f.String("tokenizer", "", "tokenizer.json to copy into the folder")
			f.Bool("transformers5", false, "write config.json in the form of transformers 5")
			f.Bool("overwrite", false, "replace a folder that has files in it")
			f.Bool("no-verify", false, "do not read the folder back")
		},
		examples: []string{
			"export runs/demo/soap hf-model",
			"export runs/1B hf-model --dtype BF16 --max-shard 5GB --tokenizer tokenizer.json",
		},
	}
}

func runExport(_ context.Context, e *env) error {
	o, err := exportOptions(e)
	if err != nil {
		return err
	}
	eng := gemm.New(1)
	defer eng.Close()
	m, err := openModel(e.args[0], eng)
	if err != nil {
		return err
	}
	defer m.Close()
	if o.Tokens, err = tokensOf(e.args[0]); err != nil {
		return err
	}
	if err := safetensors.Export(e.args[1], m.Config(), m.Params(), o); err != nil {
		return err
	}
	said := "not verified"
	if skip, _ := e.flags.GetBool("no-verify"); !skip && o.DType != safetensors.BF16 {
		if err := safetensors.Verify(e.args[1], m, eng); err != nil {
			return err
		}
		said = "read back, weights and logits are equal"
	}
	total, _ := m.Config().ParamCount()
	_, err = fmt.Fprintf(e.out, "%s: %s parameters, %s; %s\n", e.args[1], plan.Group(total), o.DType, said)
	return err
}

// exportOptions reads and checks the flags.
func exportOptions(e *env) (safetensors.ExportOptions, error) {
	var o safetensors.ExportOptions
	dtype, _ := e.flags.GetString("dtype")
	switch o.DType = safetensors.DType(dtype); o.DType {
	case safetensors.F32, safetensors.BF16, safetensors.F64:
	default:
		return o, usagef("export: --dtype %q is not one of F32, BF16, F64", dtype)
	}
	shard, _ := e.flags.GetString("max-shard")
	size, err := config.ParseSize(shard)
	if err != nil || size < 0 {
		return o, usagef("export: --max-shard %q is not a size such as 5GB", shard)
	}
	o.MaxShardBytes = int64(size)
	o.Overwrite, _ = e.flags.GetBool("overwrite")
	if five, _ := e.flags.GetBool("transformers5"); five {
		o.Form = safetensors.Transformers5
	}
	if file, _ := e.flags.GetString("tokenizer"); file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return o, notFound(err)
		}
		o.Extra = map[string][]byte{"tokenizer.json": text}
	}
	return o, o.Validate()
}

// tokensOf are the special ids that the path's configuration names, if it has
// one; -1 there means the tokenizer's.
func tokensOf(path string) (safetensors.Tokens, error) {
	var t safetensors.Tokens
	file := configOf(path)
	if file == "" {
		return t, nil
	}
	c, err := config.Load(file, nil)
	if err != nil {
		return t, err
	}
	eos, pad := c.Data.EOS, c.Data.Pad
	if c.Data.Tokenizer != "" && (eos < 0 || pad < 0) {
		tok, err := tokenizer.Open(c.Data.Tokenizer)
		if err != nil {
			return t, nil // the tokenizer is not on this machine: leave the ids out
		}
		if eos < 0 {
			eos = tok.EOS()
		}
		if pad < 0 {
			pad = tok.Pad()
		}
	}
	for _, id := range []struct {
		v  int
		to **int
	}{{eos, &t.EOS}, {pad, &t.Pad}, {c.Data.BOS, &t.BOS}} {
		if id.v >= 0 {
			*id.to = &id.v
		}
	}
	return t, nil
}

func importCommand() command {
	return command{
		name: "import", usage: "MODEL FOLDER", min: 2, max: 2, run: runImport,
		summary: "turn a model in Hugging Face's form into a checkpoint",
		help: `Every tensor must have its name, shape and type; what is missing, unexpected or
malformed is listed. FOLDER becomes a store of checkpoints with the weights as
step 0, which eval, generate, export and train take:

  trainer-olmo train CONFIG checkpoint.load_path=FOLDER \
    checkpoint.load_optimizer=false checkpoint.load_trainer=false`,
		examples: []string{
			"import OLMo-2-0425-1B imported/1B",
		},
	}
}

func runImport(_ context.Context, e *env) error {
	from, to := e.args[0], e.args[1]
	if !exists(from) {
		return usagef("import: %s: no such file or directory", from)
	}
	eng := gemm.New(1)
	defer eng.Close()
	m, err := safetensors.Import[float32](from, eng)
	if err != nil {
		return err
	}
	defer m.Close()
	json, err := os.ReadFile(filepath.Join(from, "config.json"))
	if err != nil {
		return err
	}
	store, err := checkpoint.Open(to, checkpoint.Options{})
	if err != nil {
		return err
	}
	st := checkpoint.State{Weights: checkpoint.Weights(m.Params()), ModelConfig: json, Origin: checkpoint.Origin{Kernel: eng.Kernels(), Build: buildName(), Precision: "float32"}}
	if err := store.Save(st); err != nil {
		store.Close()
		return err
	}
	if err := store.Close(); err != nil {
		return err
	}
	total, rest := m.Config().ParamCount()
	_, err = fmt.Fprintf(e.out, "%s: %s, %s parameters, %s without embeddings\n", to, m.Config().Arch, plan.Group(total), plan.Group(rest))
	return err
}
