package config

import (
	"fmt"
	"slices"
	"strings"
)

// Fault is one thing that is wrong with a configuration.
type Fault struct {
	At  string // where: "file:line", "file", or `override "key=value"`
	Key string // dotted path, empty when the fault is in no single key
	Msg string // what is wrong and what is allowed
}

// Error is one line: place, key, message.
func (f Fault) Error() string {
	parts := make([]string, 0, 3)
	for _, s := range []string{f.At, f.Key, f.Msg} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	return strings.Join(parts, ": ")
}

// Errors is every fault found, in the order of the file. It is what [Load]
// returns for a configuration that cannot be used, so that a command can tell
// a wrong file (exit status 2) from a failed run.
type Errors []Fault

// Error is one line for each fault.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, f := range e {
		lines[i] = f.Error()
	}
	return strings.Join(lines, "\n")
}

// Nearest returns the candidate that word was most likely meant to be, or ""
// when none is close: at most one edit for every three letters, two at least.
func Nearest(word string, candidates []string) string {
	best, bestDistance := "", max(2, len(word)/3)+1
	if len(word) < 3 {
		bestDistance = 2
	}
	for _, c := range candidates {
		d := distance(strings.ToLower(word), strings.ToLower(c))
		// Of two at the same distance the one of the same length is likelier: a
		// wrong letter rather than a missing one.
		if d < bestDistance || d == bestDistance && best != "" && len(c) == len(word) && len(best) != len(word) {
			best, bestDistance = c, d
		}
	}
	return best
}

// distance is the number of insertions, deletions, substitutions and swaps of
// neighbours that turn a into b (optimal string alignment).
func distance(a, b string) int {
	before, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next := make([]int, len(b)+1)
		next[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			next[j] = min(row[j]+1, next[j-1]+1, row[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}

// didYouMean is the ending of an error text, empty without a near candidate.
func didYouMean(word string, candidates []string) string {
	if s := Nearest(word, candidates); s != "" {
		return "; did you mean " + s + "?"
	}
	return ""
}

// unknownKey words the fault for a key that the schema lacks. It looks for a
// near name in the same group, then for the same name elsewhere, then for the
// name that another trainer gives it.
func unknownKey(s schema, group, name string) string {
	full := join(group, name)
	if alias, ok := aliases[name]; ok && s.has(alias) && !slices.Contains(s.names(group), alias) {
		return fmt.Sprintf("unknown key; here it is called %s", alias)
	}
	if near := Nearest(name, s.names(group)); near != "" {
		return fmt.Sprintf("unknown key; did you mean %s?", join(group, near))
	}
	for _, k := range s.keys {
		if strings.HasSuffix(k.Path, "."+name) || k.Path == name {
			return fmt.Sprintf("unknown key; did you mean %s?", k.Path)
		}
	}
	if near := Nearest(full, s.paths()); near != "" {
		return fmt.Sprintf("unknown key; did you mean %s?", near)
	}
	return fmt.Sprintf("unknown key; allowed: %s", strings.Join(s.names(group), ", "))
}

// aliases are names from OLMo's two trainers and from Hugging Face for keys
// that are called otherwise here.
var aliases = map[string]string{
	"learning_rate": "optimizer.lr", "max_duration": "train.steps", "max_steps": "train.steps",
	"global_train_batch_size": "train.global_batch_size", "rank_microbatch_size": "train.micro_batch_size",
	"device_train_microbatch_size": "train.micro_batch_size", "max_sequence_length": "data.sequence_length",
	"t_warmup": "scheduler.warmup", "z_loss_multiplier": "loss.z_loss", "save_interval": "checkpoint.interval",
	"eval_interval": "eval.interval", "weight_tying": "model.tie_word_embeddings", "hidden_dim": "model.hidden_size",
	"intermediate_size": "model.hidden_size", "num_hidden_layers": "model.n_layers", "num_attention_heads": "model.n_heads",
	"num_key_value_heads": "model.n_kv_heads", "batch_size": "train.global_batch_size", "memmap_dtype": "data.dtype",
	"layer_norm_eps": "model.norm_eps", "rms_norm_eps": "model.norm_eps",
}
