package config

import "fmt"

// validator checks what one key alone cannot tell. It names the place where the
// key was set, or the file when it was not.
type validator struct {
	file   string
	set    map[string]string
	faults Errors
}

// Validate reports every fault of c; nil when there is none. The error is
// [Errors].
func (c *Config) Validate() error {
	v := &validator{}
	v.config(c)
	if len(v.faults) > 0 {
		return v.faults
	}
	return nil
}

// fail records a fault of the first key, which the message may relate to others.
func (v *validator) fail(bad bool, key, format string, args ...any) {
	if !bad {
		return
	}
	at := v.set[key]
	if at == "" {
		at = v.file
	}
	v.faults = append(v.faults, Fault{at, key, fmt.Sprintf(format, args...)})
}

func (v *validator) config(c *Config) {
	v.model(&c.Model)
	v.data(&c.Data)
	v.train(&c.Train, &c.Data)
	v.scheduler(&c.Scheduler, &c.Optimizer)
	v.optimizer(&c.Optimizer)
	v.runtime(c)
	v.tiers(c)
	v.parallel(c)
	v.fail(c.SaveFolder == "", "save_folder", "is empty; set the run folder")
	f := c.Data.InstanceFilter
	v.fail(f.MinPeriod > f.MaxPeriod, "data.instance_filter.repetition_min_period",
		"%d is above repetition_max_period %d", f.MinPeriod, f.MaxPeriod)
}

// model names the missing or inconsistent sizes by key.
func (v *validator) model(m *Model) {
	sizes := []struct {
		key string
		n   int
	}{{"model.d_model", m.DModel}, {"model.n_layers", m.NLayers}, {"model.n_heads", m.NHeads}}
	missing := false
	for _, s := range sizes {
		missing = missing || s.n == 0
		v.fail(s.n == 0, s.key, "is not set; set it, or model.preset")
	}
	v.fail(m.VocabSize == 0, "model.vocab_size", "is not set; needed unless the data is bytes, or token files with metadata beside them")
	if missing || m.VocabSize == 0 {
		return
	}
	derived := m.HeadDim == m.DModel/m.NHeads
	v.fail(derived && m.DModel%m.NHeads != 0, "model.n_heads", "%d does not divide d_model %d; change one or set model.head_dim", m.NHeads, m.DModel)
	v.fail(m.NKVHeads > 0 && m.NHeads%m.NKVHeads != 0, "model.n_kv_heads", "%d does not divide n_heads %d", m.NKVHeads, m.NHeads)
	v.fail(m.HeadDim%2 != 0, "model.head_dim", "%d is odd; rotary embeddings need an even width", m.HeadDim)
	for i, w := range m.SlidingWindow {
		v.fail(w == 0, "model.sliding_window", "item %d is 0; must be -1 or positive", i+1)
	}
	if len(v.faults) == 0 {
		err := c2m(m).Validate()
		v.fail(err != nil, "model", "%v", err)
	}
}

func (v *validator) data(d *Data) {
	v.fail(d.Corpus == "" && len(d.Paths) == 0, "data.paths", "is not set; set it, or data.corpus: goroot")
	v.fail(d.Corpus != "" && len(d.Paths) > 0, "data.paths", "is set beside data.corpus; one of the two is allowed")
	v.fail(d.Corpus != "" && len(d.LabelMaskPaths) > 0, "data.label_mask_paths", "needs data.paths")
	v.fail(d.KeepLast && d.Order != "legacy", "data.keep_last", "is part of data.order legacy")
	v.fail(d.MaxTargetLength%d.SequenceLength != 0, "data.max_target_sequence_length", "%d is not a multiple of data.sequence_length %d", d.MaxTargetLength, d.SequenceLength)
	v.fail(d.Kind == "packed" && d.SequenceLength&(d.SequenceLength-1) != 0, "data.sequence_length", "%d is not a power of two, which data.kind packed needs", d.SequenceLength)
	n := len(d.LabelMaskPaths)
	v.fail(n > 0 && n != len(d.Paths) && !d.ExpandGlob && d.Corpus == "", "data.label_mask_paths", "has %d files for %d token files", n, len(d.Paths))
	for i, p := range d.Paths {
		v.fail(p == "", "data.paths", "item %d is empty", i+1)
	}
}

func (v *validator) train(t *Train, d *Data) {
	set := 0
	for _, n := range []Count{t.Steps, t.Tokens, t.Epochs} {
		if n > 0 {
			set++
		}
	}
	v.fail(set == 0, "train.steps", "is not set; set one of train.steps, train.tokens, train.epochs")
	v.fail(set > 1, "train.steps", "one of train.steps, train.tokens, train.epochs is allowed, %d are set", set)
	v.fail(t.SumGroups&(t.SumGroups-1) != 0, "train.sum_groups", "%d is not a power of two", t.SumGroups)
	seq := Count(d.SequenceLength)
	v.fail(t.GlobalBatchSize%seq != 0, "train.global_batch_size", "%d is not a multiple of data.sequence_length %d", t.GlobalBatchSize, seq)
	if t.MicroBatchSize == t.GlobalBatchSize {
		return
	}
	v.fail(t.MicroBatchSize%seq != 0, "train.micro_batch_size", "%d is not a multiple of data.sequence_length %d", t.MicroBatchSize, seq)
	if t.MicroBatchSize > 0 {
		v.fail(t.GlobalBatchSize%t.MicroBatchSize != 0, "train.micro_batch_size", "%d does not divide global_batch_size %d", t.MicroBatchSize, t.GlobalBatchSize)
	}
}

// optimizer checks what the methods do not share.
func (v *validator) optimizer(o *Optimizer) {
	v.fail(o.OneSidedEmbeddings && o.Name != "soap" && o.Name != "eigen-shampoo", "optimizer.one_sided_embeddings", "needs optimizer.name soap or eigen-shampoo, not %s", o.Name)
	if len(v.faults) == 0 && o.SecondOrder() {
		_, err := o.options()
		v.fail(err != nil, "optimizer", "%v", err)
	}
}

func (v *validator) scheduler(s *Scheduler, o *Optimizer) {
	v.fail(s.WarmupMinLR > o.LR, "scheduler.warmup_min_lr", "%g is above optimizer.lr %g", s.WarmupMinLR, o.LR)
	v.fail(s.DecayMinLR > o.LR, "scheduler.decay_min_lr", "%g is above optimizer.lr %g", s.DecayMinLR, o.LR)
	v.fail(s.LRMin > o.LR, "scheduler.lr_min", "%g is above optimizer.lr %g", s.LRMin, o.LR)
	v.fail(s.Name == "wsds" && len(s.PeriodLengths) == 0, "scheduler.period_lengths", "is empty; wsds needs at least one period")
	v.fail(s.Warmup > 0 && s.WarmupFraction > 0, "scheduler.warmup", "is set beside warmup_fraction; one of the two is allowed")
	for i, p := range s.PeriodLengths {
		v.fail(p <= 0, "scheduler.period_lengths", "item %d is %d, must be positive", i+1, p)
	}
}

// parallel checks the section of that name.
func (v *validator) parallel(c *Config) {
	average := c.Parallel.Roots == "average"
	v.fail(average && c.Optimizer.Name != "shampoo", "parallel.roots", "average needs inverse roots, which optimizer.name shampoo has and %s has not; allowed: owner", c.Optimizer.Name)
	v.fail(average && c.Parallel.Shard, "parallel.roots", "average needs the factors on all ranks, with parallel.shard only the owner has them; allowed: owner")
}

// notices are hints about values that are allowed and probably not meant: keys of
// the asynchronous mode that are set to something else than their default.
func (c *Config) notices(set map[string]string) []string {
	r, d := c.Runtime, Default().Runtime
	if r.Mode == "asteria" {
		return nil
	}
	var out []string
	for _, k := range []struct {
		key     string
		changed bool
	}{
		{"runtime.staleness", r.Staleness != d.Staleness}, {"runtime.lag", r.Lag != d.Lag}, {"runtime.lag_start", r.LagStart != d.LagStart},
		{"runtime.adopt", r.Adopt != d.Adopt}, {"runtime.ready_share", r.ReadyShare != d.ReadyShare}, {"runtime.workers", r.Workers != d.Workers},
	} {
		if k.changed && set[k.key] != "" {
			out = append(out, fmt.Sprintf("%s: %s has no effect in native mode", set[k.key], k.key))
		}
	}
	return out
}
