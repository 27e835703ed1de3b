package plan

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/asteria-runtime/asteria/trainer-olmo/asteria"
	"github.com/asteria-runtime/asteria/trainer-olmo/model"
)

// Write prints the plan for people.
func (p *Plan) Write(w io.Writer) error {
	var b strings.Builder
	m := p.Model
	fmt.Fprintf(&b, "%s\n\n", p.Name)
	fmt.Fprintf(&b, "model         %s, d_model %s, %s layers, %s heads%s, head_dim %s, hidden %s, vocabulary %s%s\n",
		m.Arch, Group(int64(m.DModel)), Group(int64(m.NLayers)), Group(int64(m.NHeads)), grouped(m), Group(int64(m.HeadDim)),
		Group(int64(m.HiddenSize)), Group(int64(m.VocabSize)), tied(m))
	fmt.Fprintf(&b, "parameters    %s total, %s without embeddings\n", Group(p.Parameters), Group(p.NonEmbedding))
	fmt.Fprintf(&b, "FLOPs/token   %.4g\n", p.FLOPsPerToken)
	fmt.Fprintf(&b, "batch         %s tokens = %s sequences of %s, in %s micro-batches of %s tokens\n",
		Group(p.BatchTokens), Group(p.BatchTokens/int64(p.Sequence)), Group(int64(p.Sequence)), Group(p.BatchTokens/p.MicroTokens), Group(p.MicroTokens))
	p.writeLength(&b)
	fmt.Fprintf(&b, "optimizer     %s\n", p.Optimizer)
	fmt.Fprintf(&b, "schedule      %s\n\n", p.ScheduleText)
	p.writeRates(&b)
	p.writeMemory(&b)
	for _, n := range p.Notes {
		fmt.Fprintf(&b, "\nnote: %s", n)
	}
	if len(p.Notes) > 0 {
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func grouped(m model.Config) string {
	if m.NKVHeads == m.NHeads {
		return ""
	}
	return fmt.Sprintf(" over %s key/value heads", Group(int64(m.NKVHeads)))
}

func tied(m model.Config) string {
	if m.TieWordEmbeddings {
		return ", tied embeddings"
	}
	return ""
}

func (p *Plan) writeLength(b *strings.Builder) {
	if p.Steps == 0 {
		b.WriteString("length        known when the data is opened\n")
		return
	}
	steps := p.Steps
	if p.StopAt > 0 {
		steps = min(steps, p.StopAt)
	}
	tokens := steps * p.BatchTokens
	fmt.Fprintf(b, "length        %s steps = %s tokens, %.3g tokens a parameter, %.3g FLOPs\n",
		Group(steps), Group(tokens), float64(tokens)/float64(p.Parameters), float64(tokens)*p.FLOPsPerToken)
	if p.EpochTokens > 0 {
		fmt.Fprintf(b, "data          %s tokens an epoch, %.3g epochs\n", Group(p.EpochTokens), float64(tokens)/float64(p.EpochTokens))
	}
}

func (p *Plan) writeRates(b *strings.Builder) {
	fmt.Fprintf(b, "%16s %22s %14s\n", "step", "tokens", "learning rate")
	for _, r := range p.Rates {
		fmt.Fprintf(b, "%16s %22s %14s  %s\n", Group(r.Step), Group(r.Step*p.BatchTokens), strconv.FormatFloat(r.LR, 'g', 6, 64), r.Note)
	}
}

func (p *Plan) writeMemory(b *strings.Builder) {
	fmt.Fprintf(b, "\n%-20s %22s %12s\n", "memory", "bytes", "")
	for _, m := range p.Memory {
		about := ""
		if m.Estimate {
			about = " (estimate)"
		}
		fmt.Fprintf(b, "%-20s %22s %12s  %s%s\n", m.Class, Group(m.Bytes), Size(m.Bytes), m.What, about)
	}
	fmt.Fprintf(b, "%-20s %22s %12s\n", "total", Group(p.Total()), Size(p.Total()))
	p.writeDevice(b)
	p.writeTiers(b)
	p.writeShares(b)
}

// listed is the largest number of ranks whose shares are printed one by one.
const listed = 16

// writeShares prints what each rank holds of the optimizer's state, in runs on
// several ranks.
func (p *Plan) writeShares(b *strings.Builder) {
	if p.Ranks < 2 {
		return
	}
	fmt.Fprintf(b, "\n%-20s %22s %12s\n", "state by rank", "bytes", "")
	line := func(name string, n int64, what string) {
		fmt.Fprintf(b, "%-20s %22s %12s  %s\n", name, Group(n), Size(n), what)
	}
	if len(p.Shares) == 0 {
		line(fmt.Sprintf("each of %d ranks", p.Ranks), p.StateBytes, "all of it; parallel.shard divides it")
		return
	}
	if len(p.Shares) <= listed {
		for rank, n := range p.Shares {
			line(fmt.Sprintf("rank %d", rank), n, "")
		}
	}
	line("fullest rank", p.Fullest(), fmt.Sprintf("%.4f/%d of the unsharded state", p.evenly(), p.Ranks))
	line("unsharded", p.StateBytes, "moments, factors, roots, counters; without refreshes in flight")
}

// writeDevice prints what a run takes of an accelerator's memory.
func (p *Plan) writeDevice(b *strings.Builder) {
	if len(p.Device) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%-20s %22s %12s\n", "device memory", "bytes", "")
	sum := int64(0)
	for _, m := range p.Device {
		about := ""
		if m.Estimate {
			about = " (estimate)"
		}
		fmt.Fprintf(b, "%-20s %22s %12s  %s%s\n", m.Class, Group(m.Bytes), Size(m.Bytes), m.What, about)
		sum += m.Bytes
	}
	fmt.Fprintf(b, "%-20s %22s %12s\n", "total", Group(sum), Size(sum))
}

// writeTiers prints where the optimizer's state lies, in runs that place it.
func (p *Plan) writeTiers(b *strings.Builder) {
	if len(p.Tiers) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%-20s %22s %12s\n", "optimizer's state", "bytes", "")
	for _, t := range p.Tiers {
		limit := "no limit"
		if t.Capacity > 0 {
			limit = "of " + Size(t.Capacity)
		}
		fmt.Fprintf(b, "%-20s %22s %12s  %s\n", t.Name, Group(t.Bytes), Size(t.Bytes), limit)
	}
}

// WriteTensors prints the persistent bytes of every parameter.
func (p *Plan) WriteTensors(w io.Writer) error {
	width := 0
	for _, t := range p.Tensors {
		width = max(width, len(t.Name))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%-*s  %-16s %-13s %6s %22s %20s%s\n", width, "parameter", "shape", "updated by", "blocks", "value + gradient", "optimizer", p.tierColumns())
	for _, t := range p.Tensors {
		fmt.Fprintf(&b, "%-*s  %-16s %-13s %6d %22s %20s", width, t.Name, fmt.Sprint(t.Shape), t.Method, t.Blocks, Group(t.Param), Group(t.State))
		if len(p.Tiers) > 0 {
			for _, n := range t.Tiers {
				fmt.Fprintf(&b, " %16s", Group(n))
			}
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// tierColumns heads the bytes by tier, in runs that place the state.
func (p *Plan) tierColumns() string {
	if len(p.Tiers) == 0 {
		return ""
	}
	return fmt.Sprintf(" %16s %16s %16s", asteria.TierDevice, asteria.TierHost, asteria.TierNVMe)
}

// Presets prints the parameter counts of all published sizes.
func Presets(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%-18s %8s %7s %8s %8s %8s %18s %18s\n", "preset", "d_model", "layers", "heads", "hidden", "vocab", "parameters", "non-embedding")
	for _, name := range model.PresetNames() {
		c, err := model.Preset(name)
		if err != nil {
			return err
		}
		c = c.Resolved()
		total, rest := c.ParamCount()
		heads := strconv.Itoa(c.NHeads)
		if c.NKVHeads != c.NHeads {
			heads += "/" + strconv.Itoa(c.NKVHeads)
		}
		fmt.Fprintf(&b, "%-18s %8d %7d %8s %8d %8d %18s %18s\n", name, c.DModel, c.NLayers, heads, c.HiddenSize, c.VocabSize, Group(total), Group(rest))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Group writes a whole number with commas: 1,176,764,416.
func Group(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Size shows bytes with a binary unit: 4.38 GiB.
func Size(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	f, i := float64(n), 0
	for f >= 1024 && i < len(units)-1 {
		f, i = f/1024, i+1
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.2f %s", f, units[i])
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
