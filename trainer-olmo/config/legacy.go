package config

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/asteria-runtime/asteria/trainer-olmo/tokenizer"
)

// legacyMarks are keys that only the legacy trainer has. Two of them make a
// file a legacy one: one alone may be a slip in a file of ours.
var legacyMarks = []string{
	"max_duration", "global_train_batch_size", "device_train_microbatch_size", "precision", "evaluators", "fsdp",
	"tokenizer.identifier", "save_interval", "eval_interval", "optimizer.learning_rate", "scheduler.t_warmup",
	"model.max_sequence_length", "model.embedding_size", "model.weight_tying", "model.mlp_ratio", "model.activation_type",
}

// isLegacy recognises OLMo's train.py YAML.
func isLegacy(tree *node) bool {
	marks := 0
	for _, key := range legacyMarks {
		if key != "model.max_sequence_length" && tree.path(key) != nil {
			marks++
		}
	}
	return marks >= 2
}

// loadLegacy translates a legacy file. Keys that the legacy trainer lacks and
// this one has (loss.*, runtime.*, optimizer.precondition_frequency, …) are then
// applied on top, from the file or from overrides.
func (l *loader) loadLegacy(tree *node) (*Config, error) {
	old := legacyDefault()
	p := &interpolator{root: tree, defaults: reflect.ValueOf(old), lookupEnv: os.LookupEnv}
	tree, err := p.tree(tree)
	if err != nil {
		return nil, err
	}
	was, d := newDecoder(reflect.TypeFor[legacyConfig]()), newDecoder(reflect.TypeFor[Config]())
	theirs, ours, faults := split(tree, was.schema, d.schema, "")
	if faults != nil {
		return nil, faults
	}
	was.group(theirs, reflect.ValueOf(&old).Elem(), "")
	if len(was.faults) > 0 {
		return nil, was.faults
	}
	t := &translator{old: &old, tree: theirs, set: was.set, file: l.file, missing: p.missing}
	c := t.config()
	if len(t.faults) > 0 {
		return nil, t.faults
	}
	l.notices = t.notices
	d.group(ours, reflect.ValueOf(c).Elem(), "")
	return l.finish(d, c)
}

// split sorts the keys of a tree into those of the legacy trainer and those of
// this one, by path; a key of neither is a fault.
func split(n *node, theirs, ours schema, path string) (a, b *node, faults Errors) {
	a, b = &node{kind: mapKind, at: n.at, size: 1}, &node{kind: mapKind, at: n.at, size: 1}
	for _, e := range n.entries {
		full := join(path, e.key)
		isGroup := theirs.names(full) != nil || ours.names(full) != nil
		switch {
		case isGroup && e.value.kind == mapKind:
			x, y, f := split(e.value, theirs, ours, full)
			faults = append(faults, f...)
			if len(x.entries) > 0 || len(e.value.entries) == 0 {
				a.entries = append(a.entries, entry{e.key, e.at, x})
			}
			if len(y.entries) > 0 {
				b.entries = append(b.entries, entry{e.key, e.at, y})
			}
		case theirs.has(full):
			a.entries = append(a.entries, e)
		case ours.has(full):
			b.entries = append(b.entries, e)
		default:
			faults = append(faults, Fault{e.at, full, unknownKey(merged(theirs, ours, path), path, e.key)})
		}
	}
	return a, b, faults
}

// merged offers the keys of both schemas for suggestions, legacy first.
func merged(theirs, ours schema, group string) schema {
	m := schema{fields: theirs.fields, keys: append(slices.Clone(theirs.keys), ours.keys...), group: map[string][]string{}}
	m.group[group] = append(slices.Clone(theirs.names(group)), ours.names(group)...)
	return m
}

// translator turns a legacy configuration into one of ours.
type translator struct {
	old     *legacyConfig
	tree    *node
	set     map[string]string
	file    string
	missing []string
	faults  Errors
	notices []string
}

func (t *translator) notice(format string, args ...any) {
	t.notices = append(t.notices, fmt.Sprintf(format, args...))
}

// refuse records a fault when the value of key cannot be honoured here.
func (t *translator) refuse(bad bool, key, format string, args ...any) {
	if !bad {
		return
	}
	msg := fmt.Sprintf(format, args...)
	at := t.set[key]
	if at == "" {
		at, msg = t.file, msg+" (not set in the file: this is the legacy trainer's default)"
	}
	t.faults = append(t.faults, Fault{at, key, msg})
}

func (t *translator) config() *Config {
	o := t.old
	c := Default()
	c.Legacy = true
	t.notice("%s: an OLMo train.py configuration; its rules apply: loss divided by batch x sequence, z-loss 1e-4 when on, data order of the legacy trainer", t.file)
	c.RunName, c.Seed = or(o.RunName, "run"), o.Seed
	c.SaveFolder = t.saveFolder(c.RunName)
	c.Model = t.model()
	c.Data = t.data()
	c.Train = t.train()
	c.Optimizer = t.optimizer()
	c.Scheduler = t.scheduler()
	c.Loss = t.loss()
	c.Checkpoint = t.checkpoint()
	c.Eval = t.eval()
	if o.Precision != "" && o.Precision != "fp32" {
		t.notice("precision: %s runs as float32", o.Precision)
	}
	t.notices = append(t.notices, t.missing...)
	t.listIdle()
	return &c
}

// or is v, or def when v is empty.
func or[V comparable](v, def V) V {
	var zero V
	if v == zero {
		return def
	}
	return v
}

// saveFolder falls back to runs/NAME where the file leaves the choice to paths
// that do not exist on this machine.
func (t *translator) saveFolder(name string) string {
	at := t.set["save_folder"] + ":"
	unresolved := slices.ContainsFunc(t.missing, func(m string) bool { return strings.HasPrefix(m, at) })
	if t.old.SaveFolder != "" && !unresolved {
		return t.old.SaveFolder
	}
	t.missing = slices.DeleteFunc(t.missing, func(m string) bool { return strings.HasPrefix(m, at) })
	t.notice("save_folder: none of the file's folders exists; runs/%s is used", name)
	return "runs/" + name
}

// model finds the architecture that the switches add up to.
func (t *translator) model() Model {
	o := &t.old.Model
	m := defaultModel()
	m.DModel, m.NLayers, m.NHeads, m.NKVHeads = o.DModel, o.NLayers, o.NHeads, o.NKVHeads
	if o.MultiQuery != nil && *o.MultiQuery {
		m.NKVHeads = 1
	}
	m.HiddenSize = t.hidden()
	m.VocabSize = or(o.EmbeddingSize, o.VocabSize)
	m.MaxSequenceLength = o.MaxSequenceLength
	m.RopeTheta, m.NormEps, m.ClipQKV, m.TieEmbeddings = o.RopeTheta, o.NormEps, o.ClipQKV, o.WeightTying
	t.norms(&m)
	t.init(&m)
	t.refuseModel()
	return m
}

// hidden is the MLP width: mlp_hidden_size and mlp_ratio*d_model count gate and
// up together under swiglu.
func (t *translator) hidden() int {
	o := &t.old.Model
	whole := or(o.MLPHidden, int(o.MLPRatio*float64(o.DModel)))
	t.refuse(whole%2 != 0, "model.mlp_hidden_size", "%d is odd; swiglu splits it in two", whole)
	return whole / 2
}

// norms maps the norm switches. rms + norm_after + attention_layer_norm is an
// OLMo-2 block, layer norm without parameters an OLMo-1 block.
func (t *translator) norms(m *Model) {
	o := &t.old.Model
	m.Arch, m.Norm, m.NormPlace, m.QKNorm = "olmo1", "layer", "pre", "none"
	if o.NormType == "rms" {
		m.Norm = "rms"
		t.refuse(!o.NormAffine, "model.layer_norm_with_affine", "false with layer_norm_type rms is not supported")
	} else {
		t.refuse(o.NormAffine, "model.layer_norm_with_affine", "true with layer_norm_type %s is not supported; allowed: false, or layer_norm_type rms", o.NormType)
	}
	if o.NormAfter {
		m.NormPlace = "post"
	}
	if o.AttentionNorm {
		m.QKNorm = "full"
		t.refuse(o.NormType != "rms" || !o.AttentionAffine, "model.attention_layer_norm", "true is supported with layer_norm_type rms and affine norms only")
	}
	if m.Norm == "rms" && o.NormAfter && o.AttentionNorm {
		m.Arch = "olmo2"
	}
	bias := o.IncludeBias
	if o.BiasForNorm != nil {
		bias = *o.BiasForNorm
	}
	t.refuse(bias && m.Norm == "rms", "model.bias_for_layer_norm", "true is not supported; set it to false")
}

// init maps the initialisation; mitchell and full_megatron always cut at 3.
func (t *translator) init(m *Model) {
	o := &t.old.Model
	m.Init, m.InitStd, m.InitCutoff = o.InitFn, o.InitStd, 0
	if o.InitCutoff != nil {
		m.InitCutoff = *o.InitCutoff
	}
	if o.InitFn == "mitchell" || o.InitFn == "full_megatron" {
		m.InitCutoff = or(m.InitCutoff, 3)
	}
	if o.EmbInitStd != nil {
		m.EmbeddingInitStd = *o.EmbInitStd
	}
	m.ScaleEmbInit = o.ScaleEmbInit
	t.refuse(o.InitFn == "kaiming_normal", "model.init_fn", "kaiming_normal is not supported; allowed: normal, mitchell, full_megatron, fan_in")
}

// refuseModel stops at switches that would change the network silently.
func (t *translator) refuseModel() {
	o := &t.old.Model
	for _, d := range []struct {
		key string
		p   float64
	}{{"attention_dropout", o.AttentionDropout}, {"residual_dropout", o.ResidualDropout}, {"embedding_dropout", o.EmbeddingDropout}} {
		t.refuse(d.p > 0, "model."+d.key, "%g: dropout is not supported; set it to 0.0", d.p)
	}
	t.refuse(o.IncludeBias, "model.include_bias", "true is not supported; set it to false")
	t.refuse(o.Alibi, "model.alibi", "true is not supported; set it to false")
	t.refuse(!o.Rope, "model.rope", "false is not supported; set it to true")
	t.refuse(o.Activation != "swiglu", "model.activation_type", "%s is not supported; allowed: swiglu", o.Activation)
	t.refuse(o.BlockType == "parallel", "model.block_type", "parallel is not supported; allowed: sequential, llama")
	t.refuse(o.ScaleLogits, "model.scale_logits", "true is not supported; set it to false")
	t.refuse(o.EmbeddingNorm, "model.embedding_layer_norm", "true is not supported; set it to false")
}

func (t *translator) data() Data {
	o, m := &t.old.Data, &t.old.Model
	d := defaultData()
	d.Tokenizer = t.tokenizer()
	d.Paths = append(d.Paths, o.Paths...)
	if sets := t.tree.path("data.datasets"); sets != nil {
		d.Paths = append(d.Paths, t.datasets("data.datasets", sets)...)
	}
	d.LabelMaskPaths = o.LabelMasks
	d.DType = or(o.EffectiveDType, o.MemmapDType)
	d.SequenceLength, d.DocLengths = m.MaxSequenceLength, o.DocLengths
	d.EOS, d.Pad = m.EOS, m.Pad
	d.Order, d.Seed, d.KeepLast = "legacy", t.old.Seed, !o.DropLast
	d.HeldOut = 0 // every token of the files is for training
	if o.Seed != nil {
		d.Seed = *o.Seed
	}
	if n := t.tree.path("data.instance_filter"); n != nil && n.kind == mapKind {
		f := o.Filter
		d.InstanceFilter = InstanceFilter{true, or(f.MaxPeriod, 13), or(f.MinPeriod, 1), or(f.MaxCount, 32)}
	}
	t.refuse(t.tree.path("data.custom_dataset") != nil && t.tree.path("data.custom_dataset").kind != nullKind,
		"data.custom_dataset", "custom datasets are not supported")
	t.refuse(o.PadDirection == "left" && len(d.LabelMaskPaths) > 0, "data.pad_direction", "left is not supported with label masks")
	return d
}

// tokenizer is the file that the identifier names, when it is on this machine;
// training on token files works without. For a known tokenizer its EOS is
// compared all the same: official OLMo-1 files name one whose EOS is another.
func (t *translator) tokenizer() string {
	id := t.old.Tokenizer.Identifier
	if id == "" || exists(id) {
		return id
	}
	t.notice("tokenizer.identifier: %s is not on this machine; ids are checked against the vocabulary only", id)
	if k, ok := tokenizer.Lookup(id); ok && k.EOS != t.old.Model.EOS {
		t.notice("tokenizer.identifier: %s ends documents with %d, model.eos_token_id is %d, which is used", id, k.EOS, t.old.Model.EOS)
	}
	return ""
}

// datasets lists the files of a {label: [paths]} mapping, labels in order.
func (t *translator) datasets(key string, n *node) []string {
	if n.kind == nullKind {
		return nil
	}
	entries := slices.SortedFunc(slices.Values(n.entries), func(a, b entry) int { return strings.Compare(a.key, b.key) })
	var paths []string
	for _, e := range entries {
		var files []string
		if err := readList(e.value, reflect.ValueOf(&files).Elem()); err != nil {
			t.faults = append(t.faults, Fault{e.at, join(key, e.key), err.Error()})
		}
		paths = append(paths, files...)
	}
	return paths
}

func (t *translator) train() Train {
	o := t.old
	tr := Default().Train
	seq := Count(o.Model.MaxSequenceLength)
	tr.GlobalBatchSize = Count(o.GlobalBatch) * seq
	tr.MicroBatchSize = Count(t.micro()) * seq
	tr.StopAt = o.StopAt
	tr.MaxGradNorm = 0
	if o.MaxGradNorm != nil {
		tr.MaxGradNorm = *o.MaxGradNorm
	}
	if o.MaxGradNormRatio != nil {
		tr.MaxGradNormRatio = *o.MaxGradNormRatio
	}
	t.refuse(o.StopAfter > 0, "stop_after", "is not supported; use stop_at")
	t.refuse(o.DryRun, "dry_run", "true is not supported; use the command plan")
	t.duration(&tr)
	return tr
}

// micro is the micro-batch in sequences, lowered until it divides the batch.
func (t *translator) micro() int64 {
	n := min(t.old.MicroBatch, t.old.GlobalBatch)
	for t.old.GlobalBatch%n != 0 {
		n--
	}
	if n != t.old.MicroBatch {
		t.notice("device_train_microbatch_size: %d does not divide the batch of %d sequences; %d is used", t.old.MicroBatch, t.old.GlobalBatch, n)
	}
	return n
}

// duration reads max_duration: steps, "2e12T" tokens or "1ep" epochs.
func (t *translator) duration(tr *Train) {
	text := strings.TrimSpace(t.old.MaxDuration)
	into := &tr.Steps
	if digits, ok := strings.CutSuffix(text, "T"); ok {
		text, into = digits, &tr.Tokens
	} else if digits, ok := strings.CutSuffix(text, "ep"); ok {
		text, into = digits, &tr.Epochs
	}
	n, err := parseWhole(strings.TrimSpace(text))
	t.refuse(err != nil || n <= 0, "max_duration", "%q is not a number of steps, tokens such as 2e12T, or epochs such as 1ep", t.old.MaxDuration)
	*into = Count(n)
}

func (t *translator) optimizer() Optimizer {
	o := &t.old.Optimizer
	out := defaultOptimizer()
	out.Name, out.LR, out.WeightDecay, out.Eps = strings.TrimPrefix(o.Name, "decoupled_"), o.LR, o.WeightDecay, o.Eps
	out.DecayEmbeddings, out.DecayNorms = o.DecayEmb, o.DecayNorm
	if o.NoDecayNorm != nil { // deprecated, wins when set
		out.DecayNorms = !*o.NoDecayNorm
	}
	t.refuse(len(o.Betas) != 2, "optimizer.betas", "must be a list of 2 numbers")
	copy(out.Betas[:], o.Betas)
	t.refuse(o.Selective, "optimizer.selective_updates", "true is not supported; set it to false")
	return out
}

// legacySchedules maps the legacy trainer's names.
var legacySchedules = map[string]string{
	"cosine_with_warmup": "cosine", "linear_with_warmup": "linear", "inverse_sqrt_with_warmup": "inverse_sqrt",
	"max_scheduler": "max", "constant": "constant", "cosine_linear_envelope": "cosine_linear_envelope",
	"constant_with_warmup": "constant_with_warmup",
}

func (t *translator) scheduler() Scheduler {
	o := &t.old.Scheduler
	s := Default().Scheduler
	s.Legacy = true
	s.Name, s.Units, s.Warmup, s.TMax, s.AlphaF = legacySchedules[o.Name], o.Units, o.Warmup, o.TMax, o.AlphaF
	s.WarmupMinLR = 0.1 * t.old.Optimizer.LR // the legacy default; OLMo-2 sets 0
	if o.WarmupMinLR != nil {
		s.WarmupMinLR = *o.WarmupMinLR
	}
	s.GradClipWarmupSteps, s.GradClipWarmup = o.GradClipSteps, o.GradClipFactor
	return s
}

// loss applies the legacy rule: the multiplier in the file is never read by the
// legacy trainer, which uses its loss function's default of 1e-4.
func (t *translator) loss() Loss {
	out := Loss{Divisor: "tokens"}
	if t.old.AuxiliaryLoss {
		out.ZLoss = 1e-4
	}
	if m := t.old.AuxiliaryMultiplier; m != nil && *m != 1e-4 {
		t.notice("auxiliary_loss_multiplier: %g has no effect in the legacy trainer, which uses 1e-4; set loss.z_loss to change it", *m)
	}
	return out
}

func (t *translator) checkpoint() Checkpoint {
	o := t.old
	c := Default().Checkpoint
	c.Interval, c.Keep = 0, max(o.KeepSharded, 0)
	switch {
	case o.SaveInterval != nil && *o.SaveInterval > 0:
		c.Interval = *o.SaveInterval
	case o.SaveIntervalWhole != nil:
		c.Interval, c.Keep = *o.SaveIntervalWhole, max(o.KeepWhole, 0)
	}
	if o.SaveEphemeral != nil { // there as here: the next checkpoint replaces it
		c.Ephemeral = *o.SaveEphemeral
	}
	c.LoadPath, c.LoadOptimizer, c.LoadTrainer = o.LoadPath, !o.ResetOptimizer, !o.ResetTrainer && o.RestoreLoader
	if o.SaveOverwrite {
		c.Resume = "never"
	}
	return c
}

// eval gathers the token files of the lm evaluators; downstream tasks have no
// counterpart here.
func (t *translator) eval() Eval {
	e := Default().Eval
	e.Metric, e.Interval, e.AtStart, e.Tokens = "legacy", t.old.EvalInterval, t.old.EvalOnLoad, 0
	if t.old.EvalSubset > 0 {
		e.Tokens = Count(t.old.EvalSubset*t.old.EvalBatch) * Count(t.old.Model.MaxSequenceLength)
	}
	var downstream []string
	for i, ev := range t.old.Evaluators {
		if ev.Type == "downstream" {
			downstream = append(downstream, ev.Label)
			continue
		}
		e.Paths = append(e.Paths, ev.Data.Paths...)
		if sets, ok := ev.Data.Datasets.(*node); ok {
			e.Paths = append(e.Paths, t.datasets(fmt.Sprintf("evaluators[%d].data.datasets", i), sets)...)
		}
	}
	if len(downstream) > 0 {
		t.notice("evaluators: downstream tasks are not run here: %s", list(downstream))
	}
	e.Disabled = len(e.Paths) == 0
	return e
}

// listIdle tells once which keys of the file have no effect here.
func (t *translator) listIdle() {
	var idle []string
	s := schemaOf(reflect.TypeFor[legacyConfig]())
	for _, k := range s.keys {
		n := t.tree.path(k.Path)
		if s.fields[k.Path].Type.Kind() == reflect.Interface && n != nil && n.kind != nullKind && k.Path != "data.datasets" {
			idle = append(idle, k.Path)
		}
	}
	if len(idle) > 0 {
		t.notice("known keys without effect here: %s", list(idle))
	}
}

// list2 joins words for a message.
func list(words []string) string { return strings.Join(words, ", ") }
