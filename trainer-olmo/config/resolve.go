package config

import (
	"reflect"
	"slices"

	"github.com/asteria-runtime/asteria/trainer-olmo/data"
	"github.com/asteria-runtime/asteria/trainer-olmo/model"
	"github.com/asteria-runtime/asteria/trainer-olmo/tokenizer"
)

// resolve writes out the defaults that depend on other keys.
func (c *Config) resolve() {
	if c.Data.Tokenizer == "" && (c.Data.Corpus != "" || slices.ContainsFunc(c.Data.Paths, data.IsText)) {
		c.Data.Tokenizer = tokenizer.ByteName
	}
	if c.Model.VocabSize == 0 && c.Data.Tokenizer == tokenizer.ByteName {
		c.Model.VocabSize = tokenizer.ByteVocab
	}
	if c.Model.VocabSize == 0 && len(c.Data.Paths) > 0 {
		// Token files of ours say what they were written with.
		if m, err := data.ReadMeta(c.Data.Paths[0]); err == nil && m != nil {
			c.Model.VocabSize = m.VocabSize
		}
	}
	if c.Model.MaxSequenceLength == 0 {
		c.Model.MaxSequenceLength = c.Data.SequenceLength
	}
	if c.Train.MicroBatchSize == 0 {
		c.Train.MicroBatchSize = c.Train.GlobalBatchSize
	}
	if c.Optimizer.AuxLR == 0 {
		c.Optimizer.AuxLR = c.Optimizer.LR
	}
	if c.Optimizer.StartStep == 0 {
		c.Optimizer.StartStep = c.Optimizer.PreconditionFrequency
	}
	// Sizes that are missing are reported by the validator, not filled in.
	if c.Model.DModel > 0 && c.Model.NHeads > 0 {
		c.Model.take(c2m(&c.Model).Resolved())
	}
}

// decodePreset fills the model section from model.preset before the other keys
// of the section are decoded over it.
func (l *loader) decodePreset(d *decoder, tree *node, c *Config) {
	n := tree.path("model.preset")
	if n == nil || n.kind != scalarKind || n.text == "" {
		return
	}
	m, err := model.Preset(n.text)
	if err != nil {
		d.fault(n.at, "model.preset", "%q is not a preset%s", n.text, presetHint(n.text))
		return
	}
	c.Model.take(m)
}

// presetHint proposes a near preset or lists them all.
func presetHint(name string) string {
	names := model.PresetNames()
	if hint := didYouMean(name, names); hint != "" {
		return hint
	}
	return "; allowed: " + list(names)
}

// take copies a model.Config into the section, key by key of equal name.
func (m *Model) take(c model.Config) {
	copyKeys(reflect.ValueOf(m).Elem(), reflect.ValueOf(c))
	m.RopeScaling.Kind = or(m.RopeScaling.Kind, "none")
}

// c2m is the section as the model package wants it.
func c2m(m *Model) model.Config {
	var c model.Config
	copyKeys(reflect.ValueOf(&c).Elem(), reflect.ValueOf(*m))
	return c
}

// ModelConfig is the network as the model package wants it.
func (c *Config) ModelConfig() model.Config { return c2m(&c.Model) }

// DataConfig is the data as the data package wants it, for one rank.
func (c *Config) DataConfig() data.Config {
	d := &c.Data
	out := data.Config{
		Corpus: d.Corpus, Paths: d.Paths, ExpandGlob: d.ExpandGlob, LabelMaskPaths: d.LabelMaskPaths,
		Tokenizer: d.Tokenizer, DType: d.DType, EOS: optional(d.EOS), Pad: optional(d.Pad), BOS: optional(d.BOS),
		Kind: d.Kind, SequenceLength: d.SequenceLength, MaxTargetSequenceLength: d.MaxTargetLength,
		LongDocStrategy: d.LongDocStrategy, SourceGroupSize: d.SourceGroupSize, DocLengths: d.DocLengths,
		Order: d.Order, Seed: d.Seed, KeepLast: d.KeepLast, SourcePermutationSeed: optional(d.SourceSeed),
		HeldOut: d.HeldOut, HeldOutTokens: int64(d.HeldOutTokens), CacheFolder: d.CacheFolder,
		MaxBytes: int64(d.MaxBytes), GoRoot: d.GoRoot, Check: d.Check, VocabSize: c.Model.VocabSize,
		BatchInstances: int(c.Train.GlobalBatchSize) / d.SequenceLength,
	}
	if f := d.InstanceFilter; f.Enabled {
		out.Filter = &data.Filter{MaxPeriod: f.MaxPeriod, MinPeriod: f.MinPeriod, MaxCount: f.MaxCount}
	}
	if len(c.Eval.Paths) > 0 {
		out.HeldOut, out.HeldOutTokens = 0, 0 // the evaluation has files of its own
	}
	return out
}

// optional is nil for a negative number, which means "not given" in YAML.
func optional[V int | int64](v V) *V {
	if v < 0 {
		return nil
	}
	return &v
}

// SetModel replaces the network, as for a model that describes itself.
func (c *Config) SetModel(m model.Config) { c.Model = Model{}; c.Model.take(m.Resolved()) }

// copyKeys sets each field of dst from the field of src with the same YAML key;
// keys that one side lacks are left alone. A test holds the two structs to the
// same keys.
func copyKeys(dst, src reflect.Value) {
	from := map[string]reflect.Value{}
	collect(from, src)
	to := map[string]reflect.Value{}
	collect(to, dst)
	for key, v := range to {
		s, ok := from[key]
		switch {
		case !ok:
		case v.Kind() == reflect.Struct:
			copyKeys(v, s)
		default:
			v.Set(s.Convert(v.Type()))
		}
	}
}

// collect maps the YAML keys of one level to their fields; embedded structs
// belong to the level that embeds them.
func collect(into map[string]reflect.Value, v reflect.Value) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Anonymous {
			collect(into, v.Field(i))
			continue
		}
		if key := f.Tag.Get("yaml"); key != "" && key != "-" {
			into[key] = v.Field(i)
		}
	}
}
