package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/spf13/pflag"

	"github.com/asteria-runtime/asteria/trainer-olmo/data"
	"github.com/asteria-runtime/asteria/trainer-olmo/plan"
	"github.com/asteria-runtime/asteria/trainer-olmo/tokenizer"
)

func tokenizeCommand() command {
	return command{
		name: "tokenize", usage: "INPUT… --out FOLDER", min: 1, max: -1, run: runTokenize,
		summary: "turn text into token files",
		help: `INPUT are text files, JSON lines (.jsonl, .json.gz, .zst, …) or folders of them.
FOLDER gets part-*.npy (raw little-endian ids, no header) and for each a .csv.gz
with the documents and a .json with width, vocabulary and tokenizer.`,
		flags: func(f *pflag.FlagSet) {
			f.String("out", "", "folder for the token files (required)")
			f.String("tokenizer", "byte", "byte, or the path of a tokenizer.json")
			f.String("text-key", "text", "key of the text in JSON lines")
			f.String("id-key", "id", "key of the id in JSON lines")
			f.Bool("strip", false, "cut white space off both ends of each document")
			f.Bool("no-eos", false, "write no end-of-document token")
			f.Int64("max-tokens", 0, "start a new file before this many tokens, 0 = one file")
			f.Int("threads", 0, "encoding threads, 0 = one per core")
			f.Bool("overwrite", false, "replace token files that the folder holds")
		},
		examples: []string{
			"tokenize corpus.jsonl.gz --tokenizer tokenizer.json --out tokens",
			"tokenize book.txt --out tokens",
		},
	}
}

func runTokenize(ctx context.Context, e *env) error {
	f := e.flags
	o := data.TokenizeOptions{Inputs: e.args}
	o.Output, _ = f.GetString("out")
	o.TextKey, _ = f.GetString("text-key")
	o.IDKey, _ = f.GetString("id-key")
	o.Strip, _ = f.GetBool("strip")
	o.NoEOS, _ = f.GetBool("no-eos")
	o.MaxTokens, _ = f.GetInt64("max-tokens")
	o.Overwrite, _ = f.GetBool("overwrite")
	o.Threads, _ = f.GetInt("threads")
	if o.Output == "" {
		return usagef("tokenize: --out is not set; it names the folder for the token files")
	}
	if o.Threads <= 0 {
		o.Threads = runtime.NumCPU()
	}
	for _, in := range e.args {
		if !exists(in) {
			return usagef("tokenize: %s: no such file or directory", in)
		}
	}
	name, _ := f.GetString("tokenizer")
	var err error
	if o.Tokenizer, err = tokenizer.Open(name); err != nil {
		return notFound(err)
	}
	setProcs(o.Threads, 0)
	start := time.Now()
	r, err := data.Tokenize(ctx, o)
	if err != nil {
		return err
	}
	seconds := time.Since(start).Seconds()
	fmt.Fprintf(e.out, "%s documents, %s tokens of %d bytes from %s of text in %.1f s (%s/s)\n", plan.Group(r.Documents), plan.Group(r.Tokens),
		int(r.Width), plan.Size(r.Bytes), seconds, plan.Size(int64(float64(r.Bytes)/max(seconds, 1e-9))))
	if r.Empty > 0 {
		fmt.Fprintf(e.out, "%s documents without a token are left out\n", plan.Group(r.Empty))
	}
	for _, file := range r.Files {
		fmt.Fprintln(e.out, file)
	}
	return nil
}
