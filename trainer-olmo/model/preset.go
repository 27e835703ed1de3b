package model

import (
	"fmt"
	"slices"
	"strings"
)

// The vocabularies of the published models, in rows.
const (
	dolma2Rows = 100352 // 100278 padded to a multiple of 128
	neoxRows   = 50304  // 50280 padded
)

// size is what distinguishes the members of a family.
type size struct {
	name                 string
	d, layers, heads, kv int
	headDim, hidden      int
}

// olmo2Sizes are the factories of OLMo-core.
var olmo2Sizes = []size{
	{name: "1M", d: 12, layers: 4, heads: 4, headDim: 4, hidden: 256},
	{name: "14M", d: 128, layers: 4, heads: 8, hidden: 512},
	{name: "30M", d: 256, layers: 4, heads: 8, hidden: 768},
	{name: "60M", d: 384, layers: 8, heads: 8, hidden: 1536},
	{name: "100M", d: 512, layers: 12, heads: 8, hidden: 2048},
	{name: "190M", d: 768, layers: 12, heads: 12, hidden: 3072},
	{name: "370M", d: 1024, layers: 16, heads: 16, hidden: 4096},
	{name: "600M", d: 1344, layers: 16, heads: 16, hidden: 5376},
	{name: "760M", d: 1536, layers: 16, heads: 16, hidden: 6144},
	{name: "1B", d: 2048, layers: 18, heads: 16, hidden: 8192}, // not released
	{name: "1B_v2", d: 2048, layers: 16, heads: 16, hidden: 8192},
	{name: "3B", d: 3328, layers: 16, heads: 16, hidden: 13312},
	{name: "7B", d: 4096, layers: 32, heads: 32, hidden: 11008},
	{name: "13B", d: 5120, layers: 40, heads: 40, hidden: 13824},
	{name: "32B", d: 5120, layers: 64, heads: 40, kv: 8, hidden: 27648},
}

var olmo3Sizes = []size{
	{name: "600M", d: 1280, layers: 16, heads: 16, hidden: 5120},
	{name: "1B", d: 2048, layers: 16, heads: 16, hidden: 8192},
	{name: "7B", d: 4096, layers: 32, heads: 32, hidden: 11008},
	{name: "32B", d: 5120, layers: 64, heads: 40, kv: 8, hidden: 27648},
}

// legacySizes are the tiny configurations of the legacy trainer: pre-norm
// RMSNorm with weights, no QK-norm, MLP of 4d.
var legacySizes = []size{
	{name: "20M", d: 256, layers: 8, heads: 8},
	{name: "60M", d: 512, layers: 8, heads: 8},
	{name: "150M", d: 768, layers: 12, heads: 12},
	{name: "300M", d: 1024, layers: 16, heads: 16},
	{name: "700M", d: 1536, layers: 16, heads: 16},
}

func (s size) config(arch Arch) Config {
	return Config{
		Arch: arch, DModel: s.d, NLayers: s.layers, NHeads: s.heads, NKVHeads: s.kv, HeadDim: s.headDim,
		HiddenSize: s.hidden, VocabSize: dolma2Rows, InitOptions: InitOptions{InitCutoff: 3},
	}
}

// preset is a named configuration.
type preset struct {
	name   string
	config Config
}

// presets builds the list in its fixed order.
func presets() []preset {
	var list []preset
	for _, s := range olmo2Sizes {
		list = append(list, preset{"olmo2_" + s.name, s.config(OLMo2)})
	}
	for _, s := range olmo3Sizes {
		c := s.config(OLMo3)
		c.MaxSequenceLength = 8192
		list = append(list, preset{"olmo3_" + s.name, c})
	}
	for _, s := range legacySizes {
		list = append(list, preset{"tiny_olmo_" + s.name, legacyTiny(s)})
	}
	return append(list, olmo1Presets()...)
}

func legacyTiny(s size) Config {
	c := s.config(OLMo1)
	c.HiddenSize, c.VocabSize = 4*s.d, neoxRows
	c.Norm, c.NormEps, c.MaxSequenceLength = RMSNorm, 1e-6, 2048
	return c
}

func olmo1Presets() []preset {
	one := Config{
		Arch: OLMo1, DModel: 2048, NLayers: 16, NHeads: 16, HiddenSize: 8192, VocabSize: neoxRows,
		MaxSequenceLength: 2048, TieWordEmbeddings: true,
		InitOptions: InitOptions{Init: "mitchell", InitCutoff: 3},
	}
	seven := one
	seven.DModel, seven.NLayers, seven.NHeads, seven.HiddenSize = 4096, 32, 32, 11008
	seven.TieWordEmbeddings = false
	clipped := seven
	clipped.ClipQKV, clipped.MaxSequenceLength = 8, 4096
	return []preset{{"olmo1_1B", one}, {"olmo1_7B", seven}, {"olmo1_7B_0424", clipped}, {"olmo1_7B_0724", clipped}}
}

// aliases are the names under which models were released.
var aliases = map[string]string{
	"olmo_1b": "olmo1_1B", "olmo_1b_0724": "olmo1_1B", "olmo_7b": "olmo1_7B",
	"olmo_7b_0424": "olmo1_7B_0424", "olmo_7b_0724": "olmo1_7B_0724",
	"olmo_2_0425_1b": "olmo2_1B_v2", "olmo_2_1124_7b": "olmo2_7B", "olmo_2_1124_13b": "olmo2_13B", "olmo_2_0325_32b": "olmo2_32B",
	"olmo_3_1025_7b": "olmo3_7B", "olmo_3_1125_32b": "olmo3_32B",
}

// PresetNames lists the names that [Preset] knows, without released names that
// are aliases.
func PresetNames() []string {
	var names []string
	for _, p := range presets() {
		names = append(names, p.name)
	}
	return names
}

// Preset returns a published configuration. Names are those of OLMo-core, such
// as olmo2_190M, those of releases, such as OLMo-2-0425-1B, and tiny_olmo_20M and
// so on for the legacy trainer's small models; case does not count, and - is _.
func Preset(name string) (Config, error) {
	key := canonical(name)
	if to, ok := aliases[key]; ok {
		key = canonical(to)
	}
	list := presets()
	i := slices.IndexFunc(list, func(p preset) bool { return canonical(p.name) == key })
	if i < 0 {
		return Config{}, fmt.Errorf("model: no preset %q; presets are %s", name, strings.Join(PresetNames(), ", "))
	}
	return list[i].config, nil
}

func canonical(name string) string { return strings.ReplaceAll(strings.ToLower(name), "-", "_") }
