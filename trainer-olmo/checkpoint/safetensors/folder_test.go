package safetensors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/trainer-olmo/model"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// small is a model of a few thousand weights with every kind of tensor.
func small() model.Config {
	return model.Config{
		Arch: model.OLMo3, DModel: 16, NLayers: 5, NHeads: 4, NKVHeads: 2, HeadDim: 6, HiddenSize: 20, VocabSize: 33,
		SlidingWindow: []int{3, 3, 3, model.FullAttention},
		RopeScaling:   model.RopeScaling{Kind: "yarn", Factor: 4, OldContextLen: 16},
		InitOptions:   model.InitOptions{InitCutoff: 3},
	}
}

func newModel[T gemm.Float](t *testing.T, c model.Config) *model.Model[T] {
	t.Helper()
	eng := gemm.New(1)
	m, err := model.New[T](c, eng)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close(); eng.Close() })
	m.Init(3)
	return m
}

func export[T gemm.Float](t *testing.T, m *model.Model[T], o ExportOptions) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "model")
	if err := Export(dir, m.Config(), m.Params(), o); err != nil {
		t.Fatal(err)
	}
	return dir
}

// variants are models of every class.
func variants() map[string]model.Config {
	olmo2 := model.Config{DModel: 16, NLayers: 2, NHeads: 4, NKVHeads: 2, HiddenSize: 24, VocabSize: 37, InitOptions: model.InitOptions{InitCutoff: 3}}
	olmo1, tied, llama, llama3 := olmo2, olmo2, olmo2, olmo2
	olmo1.Arch, olmo1.ClipQKV = model.OLMo1, 0.8
	tied.TieWordEmbeddings = true
	llama.Arch, llama.Norm, llama.NormEps = model.OLMo1, model.RMSNorm, 1e-6
	llama3.RopeScaling = model.RopeScaling{Kind: "llama3", Factor: 8, OldContextLen: 32, HighFreqProportion: 0.25}
	linear := olmo2
	linear.RopeScaling = model.RopeScaling{Kind: "linear", Factor: 4}
	allSliding := small()
	allSliding.SlidingWindow, allSliding.SlidingLastLayer, allSliding.RopeScaling = []int{5}, true, model.RopeScaling{}
	oneWindow := small()
	oneWindow.SlidingWindow = []int{model.FullAttention, 7}
	return map[string]model.Config{
		"olmo1 clip": olmo1, "olmo2": olmo2, "olmo2 tied": tied, "olmo3 yarn": small(), "llama": llama,
		"llama3": llama3, "linear": linear, "all sliding": allSliding, "odd pattern": oneWindow,
	}
}

// Export then import gives the same configuration, weights and logits, in both
// forms of config.json, in one file and in shards.
func TestExportImportIsIdentical(t *testing.T) {
	for name, c := range variants() {
		options := []ExportOptions{{}, {Form: Transformers5}, {MaxShardBytes: 20000}}
		if name == "olmo2" {
			options = append(options, ExportOptions{MaxShardBytes: 1}) // a file a tensor
		}
		for _, o := range options {
			t.Run(fmt.Sprintf("%s form %d shard %d", name, o.Form, o.MaxShardBytes), func(t *testing.T) {
				checkRoundTrip(t, newModel[float32](t, c), o)
				checkRoundTrip(t, newModel[float64](t, c), o)
			})
		}
	}
}

func checkRoundTrip[T gemm.Float](t *testing.T, m *model.Model[T], o ExportOptions) {
	t.Helper()
	dir := export(t, m, o)
	eng := gemm.New(1)
	defer eng.Close()
	if err := Verify(dir, m, eng); err != nil {
		t.Fatal(err)
	}
	c, err := ReadConfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := m.Config()
	c.InitOptions, want.InitOptions = model.InitOptions{}, model.InitOptions{}
	// A class tells its generation by its windows.
	if c.Arch != want.Arch {
		t.Errorf("arch %s became %s", want.Arch, c.Arch)
	}
	if !c.Equal(want) {
		t.Errorf("configuration changed:\n%s", cmp.Diff(want, c))
	}
	again := filepath.Join(t.TempDir(), "again")
	back, err := Import[T](dir, eng)
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	if err := Export(again, back.Config(), back.Params(), o); err != nil {
		t.Fatal(err)
	}
	sameFiles(t, dir, again)
}

// sameFiles fails unless two folders have the same files with the same bytes.
func sameFiles(t *testing.T, a, b string) {
	t.Helper()
	x, y := contents(t, a), contents(t, b)
	if d := cmp.Diff(sortedKeys(x), sortedKeys(y)); d != "" {
		t.Fatal(d)
	}
	for name := range x {
		if !bytes.Equal(x[name], y[name]) {
			t.Errorf("%s differs", name)
		}
	}
}

func contents(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = b
	}
	return files
}

// BF16 export is the weights rounded once.
func TestExportBF16(t *testing.T) {
	m := newModel[float32](t, small())
	dir := export(t, m, ExportOptions{DType: BF16})
	back := newModel[float32](t, small())
	if err := Load(dir, back.Params()); err != nil {
		t.Fatal(err)
	}
	for i, p := range m.Params() {
		for j, v := range p.Value {
			want := make([]float32, 1)
			decode(BF16, want, []byte{byte(toBF16(v)), byte(toBF16(v) >> 8)})
			if got := back.Params()[i].Value[j]; got != want[0] {
				t.Fatalf("%s[%d]: %g became %g, want %g", p.Name, j, v, got, want[0])
			}
		}
	}
}

// rewrite writes the folder of m with its parameters changed.
func rewrite(t *testing.T, m *model.Model[float32], change func([]param.Param[float32]) []param.Param[float32]) string {
	t.Helper()
	dir := export(t, m, ExportOptions{})
	path := filepath.Join(dir, weightsFile)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	list := append([]param.Param[float32](nil), m.Params()...)
	if err := Write(path, change(list), F32); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Every tensor that does not fit is named, with its file, and no parameter is
// written.
func TestImportIsStrict(t *testing.T) {
	m := newModel[float32](t, small())
	dir := rewrite(t, m, func(ps []param.Param[float32]) []param.Param[float32] {
		ps[1].Name = "model.layers.0.self_attn.query.weight"
		ps[4].Shape = []int{ps[4].Shape[1], ps[4].Shape[0]}
		extra := param.Param[float32]{Name: "lm_head.bias", Shape: []int{2}, Value: make([]float32, 2)}
		return append(ps[:len(ps)-1], extra)
	})
	eng := gemm.New(1)
	defer eng.Close()
	_, err := Import[float32](dir, eng)
	var e *MismatchError
	if !errors.As(err, &e) || !errors.Is(err, ErrMismatch) {
		t.Fatalf("got %v", err)
	}
	path := filepath.Join(dir, weightsFile)
	want := MismatchError{
		Missing:    []string{"model.layers.0.self_attn.q_proj.weight, not in " + path, "lm_head.weight, not in " + path},
		Unexpected: []string{"lm_head.bias of " + path, "model.layers.0.self_attn.query.weight of " + path},
		Reshaped:   []string{"model.layers.0.self_attn.o_proj.weight of " + path + ": [24 16], want [16 24]"},
	}
	if d := cmp.Diff(want, *e); d != "" {
		t.Error(d)
	}
	for _, line := range append(append(want.Missing, want.Unexpected...), want.Reshaped...) {
		if !strings.Contains(err.Error(), line) {
			t.Errorf("text lacks %q", line)
		}
	}
	target := newModel[float32](t, small())
	before := append([]float32(nil), target.Params()[0].Value...)
	if err := Load(dir, target.Params()); !errors.Is(err, ErrMismatch) {
		t.Fatalf("got %v", err)
	}
	if at := differ(before, target.Params()[0].Value); at >= 0 {
		t.Error("a parameter was written")
	}
}

func TestImportNamesTensorsOfWrongType(t *testing.T) {
	m := newModel[float32](t, small())
	dir := export(t, m, ExportOptions{})
	path := filepath.Join(dir, weightsFile)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	name := `"model.norm.weight":{"dtype":"F32"`
	b = bytes.Replace(b, []byte(name), []byte(`"model.norm.weight":{"dtype":"I32"`), 1)
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	err = Load(dir, m.Params())
	if !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), "wrong type: model.norm.weight of "+path+": I32") {
		t.Errorf("got %v", err)
	}
}

// A head beside tied embeddings is unexpected.
func TestTiedModelHasNoHead(t *testing.T) {
	c := small()
	untied := newModel[float32](t, c)
	c.TieWordEmbeddings = true
	tied := newModel[float32](t, c)
	dir := export(t, untied, ExportOptions{})
	if err := Load(dir, tied.Params()); !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), "unexpected: lm_head.weight") {
		t.Errorf("got %v", err)
	}
}

// config.json may have another vocab_size than the tensors.
func TestVocabularyComesFromTensors(t *testing.T) {
	m := newModel[float32](t, small())
	dir := export(t, m, ExportOptions{})
	path := filepath.Join(dir, configFile)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b = bytes.Replace(b, []byte(`"vocab_size": 33`), []byte(`"vocab_size": 100278`), 1)
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	c, err := ReadConfig(dir)
	if err != nil || c.VocabSize != 33 {
		t.Errorf("got %d rows, %v", c.VocabSize, err)
	}
}

// Every disagreement of index and shards is an error that names the tensor.
func TestIndexFaults(t *testing.T) {
	for name, c := range map[string]struct {
		change func(dir string, x *index)
		want   string
	}{
		"tensor that no shard has": {func(_ string, x *index) { x.WeightMap["ghost"] = "model-00001-of-00002.safetensors" }, "ghost"},
		"tensor in another shard": {func(_ string, x *index) {
			x.WeightMap["model.embed_tokens.weight"] = "model-00002-of-00002.safetensors"
		}, "model.embed_tokens.weight"},
		"tensor not listed":        {func(_ string, x *index) { delete(x.WeightMap, "lm_head.weight") }, "lm_head.weight"},
		"shard outside the folder": {func(_ string, x *index) { x.WeightMap["lm_head.weight"] = "../model.safetensors" }, "../model.safetensors"},
		"shard that is missing":    {func(_ string, x *index) { x.WeightMap["lm_head.weight"] = "none.safetensors" }, "none.safetensors"},
		"no tensors":               {func(_ string, x *index) { x.WeightMap = nil }, "empty"},
		"one file beside an index": {func(dir string, _ *index) { os.WriteFile(filepath.Join(dir, weightsFile), fileOf("{}", 0), 0o666) }, "both"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newModel[float32](t, small())
			dir := export(t, m, ExportOptions{MaxShardBytes: twoShards(m)})
			path := filepath.Join(dir, indexFile)
			x, err := readIndex(path)
			if err != nil {
				t.Fatal(err)
			}
			c.change(dir, &x)
			b, _ := json.Marshal(x)
			if err := os.WriteFile(path, b, 0o666); err != nil {
				t.Fatal(err)
			}
			if err := Load(dir, m.Params()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// twoShards is a limit that a small model exceeds once.
func twoShards(m *model.Model[float32]) int64 {
	total, _ := m.Config().ParamCount()
	return 3 * total
}

func TestIndexCountsBytes(t *testing.T) {
	m := newModel[float32](t, small())
	dir := export(t, m, ExportOptions{MaxShardBytes: twoShards(m)})
	x, err := readIndex(filepath.Join(dir, indexFile))
	if err != nil {
		t.Fatal(err)
	}
	total, _ := m.Config().ParamCount()
	if x.Metadata.TotalSize != 4*total {
		t.Errorf("total_size %d, want %d", x.Metadata.TotalSize, 4*total)
	}
	for _, file := range []string{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"} {
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			t.Error(err)
		}
	}
}

// A folder that is in use is replaced only on demand, whole, and nothing is left
// beside it; a failed export leaves the old folder.
func TestExportIsAtomic(t *testing.T) {
	m := newModel[float32](t, small())
	dir := export(t, m, ExportOptions{})
	before := contents(t, dir)
	if err := Export(dir, m.Config(), m.Params(), ExportOptions{}); err == nil {
		t.Error("a folder with files was replaced")
	}
	bad := append([]param.Param[float32](nil), m.Params()...)
	bad[0].Name = strings.Repeat("x", MaxHeader)
	if err := Export(dir, m.Config(), bad, ExportOptions{Overwrite: true}); err == nil {
		t.Error("a header over the limit was written")
	}
	if d := cmp.Diff(before, contents(t, dir)); d != "" {
		t.Error("a failed export changed the folder")
	}
	extra := map[string][]byte{"tokenizer.json": []byte("{}")}
	if err := Export(dir, m.Config(), m.Params(), ExportOptions{Overwrite: true, MaxShardBytes: 9000, Extra: extra}); err != nil {
		t.Fatal(err)
	}
	after := contents(t, dir)
	if after[weightsFile] != nil || string(after["tokenizer.json"]) != "{}" || after[indexFile] == nil {
		t.Errorf("folder has %v", sortedKeys(after))
	}
	entries, err := os.ReadDir(filepath.Dir(dir))
	if err != nil || len(entries) != 1 {
		t.Errorf("left beside it: %v %v", entries, err)
	}
}

// What a killed export left is cleared by the next.
func TestExportAfterKill(t *testing.T) {
	m := newModel[float32](t, small())
	dir := filepath.Join(t.TempDir(), "model")
	for _, left := range []string{".model.tmp", ".model.old"} {
		if err := os.MkdirAll(filepath.Join(filepath.Dir(dir), left, "x"), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if err := Export(dir, m.Config(), m.Params(), ExportOptions{}); err != nil {
		t.Fatal(err)
	}
	if entries, _ := os.ReadDir(filepath.Dir(dir)); len(entries) != 1 {
		t.Errorf("left beside it: %v", entries)
	}
}

func TestExportOptionsReportAllFaults(t *testing.T) {
	err := ExportOptions{MaxShardBytes: -1, Form: 9, DType: F16, Extra: map[string][]byte{"../x": nil}}.Validate()
	for _, want := range []string{"MaxShardBytes", "form 9", "F16", "../x"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
}

// Verify notices a changed bit and a changed configuration.
func TestVerifyNotices(t *testing.T) {
	m := newModel[float32](t, small())
	dir := export(t, m, ExportOptions{})
	eng := gemm.New(1)
	defer eng.Close()
	p := m.Params()[3]
	p.Value[5] += 1e-3
	if err := Verify(dir, m, eng); err == nil || !strings.Contains(err.Error(), p.Name) {
		t.Errorf("got %v", err)
	}
	p.Value[5] -= 1e-3
	copyBack := newModel[float32](t, small())
	if err := Load(dir, copyBack.Params()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, configFile)
	b, _ := os.ReadFile(path)
	b = bytes.Replace(b, []byte(`"rope_theta": 500000`), []byte(`"rope_theta": 1000`), 1)
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := Verify(dir, copyBack, eng); err == nil || !strings.Contains(err.Error(), "configurations differ") {
		t.Errorf("got %v", err)
	}
}
