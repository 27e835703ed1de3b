package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/trainer-olmo/checkpoint"
	"github.com/asteria-runtime/asteria/trainer-olmo/checkpoint/safetensors"
	"github.com/asteria-runtime/asteria/trainer-olmo/config"
	"github.com/asteria-runtime/asteria/trainer-olmo/model"
	"github.com/asteria-runtime/asteria/trainer-olmo/plan"
	"github.com/asteria-runtime/asteria/trainer-olmo/train"
)

func evalCommand() command {
	return command{
		name: "eval", usage: "RUN|CHECKPOINT|MODEL", min: 1, max: 1, config: true, run: runEval,
		summary: "measure the held-out loss of a model, or print its logits",
		help: `MODEL is a folder in Hugging Face's form. Data and metric come from --config, or
from the config.yaml that a run or checkpoint carries, with overrides after it.
With --ids no data is read: the logits of every position are printed as JSON.`,
		flags: func(f *pflag.FlagSet) {
			f.String("config", "", "configuration that names the data")
			f.String("ids", "", "token ids, separated by commas, whose logits are printed")
		},
		examples: []string{
			"eval runs/demo/soap",
			"eval OLMo-2-0425-1B --config run.yaml data.paths=[held-out.npy]",
			"eval tiny_olmo2_hf --ids 3,14,15",
		},
	}
}

func runEval(ctx context.Context, e *env) error {
	path := e.args[0]
	if !exists(path) {
		return usagef("eval: %s: no such file or directory", path)
	}
	if e.flags.Changed("ids") {
		return printLogits(e, path)
	}
	c, err := evalConfig(e, path)
	if err != nil {
		return err
	}
	tellNotices(e.err, c)
	setProcs(c.ComputeThreads(), 0)
	r, err := train.Eval(ctx, c, path)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(e.out, "CE loss     %.6f\nperplexity  %.4f\nlabels      %s\n", r.CE, r.PPL, plan.Group(r.Labels))
	return err
}

// evalConfig finds the configuration for a path; a model that describes itself
// needs only the data from overrides.
func evalConfig(e *env, path string) (*config.Config, error) {
	file, _ := e.flags.GetString("config")
	if file == "" {
		file = configOf(path)
	}
	if file != "" {
		return load(file, e.set)
	}
	folder := path
	if !isModel(path) {
		ck, err := checkpoint.Load(path)
		if err != nil {
			return nil, err
		}
		folder = ck.Path() // of an imported model, which has config.json
	}
	m, err := safetensors.ReadConfig(folder)
	if err != nil {
		return nil, err
	}
	c := config.Default()
	c.SetModel(m)
	c.Train.Steps = 1
	set := e.set
	for _, o := range e.set {
		if files, ok := strings.CutPrefix(strings.TrimLeft(o, "-"), "eval.paths="); ok {
			set = append([]string{"data.paths=" + files}, set...)
		}
	}
	out, err := config.Parse(path, c.YAML(), set)
	if err == nil && len(out.Eval.Paths) == 0 {
		out.Eval.Paths = out.Data.Paths // all of it is held out from this model
	}
	return out, err
}

func printLogits(e *env, path string) error {
	text, _ := e.flags.GetString("ids")
	b := model.Batch{Rows: 1}
	for _, s := range strings.Split(text, ",") {
		id, err := strconv.ParseInt(strings.TrimSpace(s), 10, 32)
		if err != nil {
			return usagef("eval: --ids: %q is not a token id", s)
		}
		b.Tokens = append(b.Tokens, int32(id))
	}
	b.Seq = len(b.Tokens)
	eng := gemm.New(1)
	defer eng.Close()
	m, err := openModel(path, eng)
	if err != nil {
		return err
	}
	defer m.Close()
	vocab := m.Config().VocabSize
	logits := make([]float32, b.Seq*vocab)
	if err := m.Logits(b, logits); err != nil {
		return err
	}
	rows := make([][]float32, b.Seq)
	for i := range rows {
		rows[i] = logits[i*vocab : (i+1)*vocab]
	}
	return json.NewEncoder(e.out).Encode(map[string]any{"ids": b.Tokens, "logits": rows})
}
