package plan

import (
	"fmt"
	"math"
	"os"

	"github.com/asteria-runtime/asteria/trainer-olmo/asteria"
	"github.com/asteria-runtime/asteria/trainer-olmo/config"
	"github.com/asteria-runtime/asteria/trainer-olmo/data"
	"github.com/asteria-runtime/asteria/trainer-olmo/model"
	"github.com/asteria-runtime/asteria/trainer-olmo/optim"
)

// Plan is what a run will need and do.
type Plan struct {
	Name  string
	Model model.Config

	Parameters, NonEmbedding int64
	FLOPsPerToken            float64 // as OLMo-core counts them

	Sequence     int   // tokens of an instance
	BatchTokens  int64 // of one step
	MicroTokens  int64 // of one forward pass
	Steps        int64 // 0 when it depends on data that is not here
	StopAt       int64 // step at which training stops before the schedule ends, 0 = never
	EpochTokens  int64 // of one pass over the data, 0 when not known
	ScheduleText string
	Rates        []Rate

	Optimizer string
	Memory    []Bytes
	Device    []Bytes // memory of the accelerator, nil where none computes
	// Tiers is the state of the optimizer by tier, nil where no tiers are configured.
	Tiers []Tier
	// Ranks of the run, 1 or more. Memory is that of one rank, the fullest. Shares are
	// the bytes of optimizer state on each of them with parallel.shard, nil without;
	// StateBytes is all of the state: moments, factors, roots, counters, without
	// refreshes in flight.
	Ranks      int
	Shares     []int64
	StateBytes int64
	offHeap    int64 // of Memory, bytes that the Go heap does not hold
	Tensors    []Tensor
	Notes      []string
}

// Tensor is the persistent memory of one parameter: itself, its gradient, and
// what the optimizer keeps for it.
type Tensor struct {
	Name   string
	Shape  []int
	Method string // what updates it
	Blocks int    // blocks that it is cut into, 0 without factors
	Param  int64  // bytes of value and gradient
	State  int64  // bytes of moments, factors, roots, counters, refreshes in flight
	// Tiers are the bytes of State by tier: device, host, nvme. Nothing where no
	// tiers are configured.
	Tiers [tiers]int64
}

// Rate is the learning rate at one step.
type Rate struct {
	Step int64
	LR   float64
	Note string
}

// New computes the plan of a resolved configuration.
func New(c *config.Config) (*Plan, error) {
	m := c.ModelConfig()
	p := &Plan{
		Name: c.RunName, Model: m.Resolved(), Sequence: c.Data.SequenceLength, Optimizer: c.Optimizer.Name,
		BatchTokens: int64(c.Train.GlobalBatchSize), MicroTokens: int64(c.Train.MicroBatchSize), StopAt: int64(c.Train.StopAt),
		Ranks: max(1, c.Parallel.Ranks),
		Notes: c.Notices,
	}
	p.Parameters, p.NonEmbedding = m.ParamCount()
	p.FLOPsPerToken = m.FLOPsPerToken(p.Sequence)
	p.length(c)
	if err := p.schedule(c); err != nil {
		return nil, err
	}
	if err := p.memory(c); err != nil {
		return nil, err
	}
	return p, nil
}

// length finds the number of steps. A length in epochs needs the data's size.
func (p *Plan) length(c *config.Config) {
	p.EpochTokens = epochTokens(c)
	batches := p.EpochTokens / p.BatchTokens
	if c.Train.Epochs > 0 && batches == 0 {
		p.Notes = append(p.Notes, "the length in epochs is known when the data is opened; the schedule is shown for one epoch of 1,000 steps")
		return
	}
	p.Steps = c.TotalSteps(batches)
}

// epochTokens is what one pass serves: whole instances, file by file. It is 0
// unless all files are token files on this machine.
func epochTokens(c *config.Config) int64 {
	d := &c.Data
	if len(d.Paths) == 0 || d.ExpandGlob || d.Kind != "fsl" || d.HeldOut > 0 && len(c.Eval.Paths) == 0 {
		return 0
	}
	width := int64(dataWidth(d, c.Model.VocabSize))
	seq, total := int64(d.SequenceLength), int64(0)
	for _, path := range d.Paths {
		info, err := os.Stat(path)
		if err != nil || info.IsDir() || data.IsText(path) {
			return 0
		}
		total += info.Size() / width / seq * seq
	}
	return total / int64(c.Train.GlobalBatchSize) * int64(c.Train.GlobalBatchSize)
}

// dataWidth is the bytes of one token.
func dataWidth(d *config.Data, vocab int) int {
	switch d.DType {
	case "uint8":
		return 1
	case "uint16":
		return 2
	case "uint32":
		return 4
	case "uint64":
		return 8
	}
	return int(data.WidthFor(vocab))
}

// schedule describes the learning rate and samples it.
func (p *Plan) schedule(c *config.Config) error {
	steps := p.Steps
	if steps == 0 {
		steps = 1000
	}
	lr, err := c.Schedule(steps)
	if err != nil {
		return err
	}
	s := &c.Scheduler
	perStep, unit := int64(1), "steps"
	if s.Units == "tokens" {
		perStep, unit = p.BatchTokens, "tokens"
	}
	warmup := int64(s.Warmup)
	if s.WarmupFraction > 0 {
		warmup = int64(math.RoundToEven(s.WarmupFraction * float64(steps) * float64(perStep)))
	}
	end := int64(s.TMax)
	if end == 0 {
		end = steps * perStep
	}
	p.ScheduleText = fmt.Sprintf("%s, peak %g, warm-up %s %s from %g, ends at %s %s",
		s.Name, c.Optimizer.LR, Group(warmup), unit, s.WarmupMinLR, Group(end), unit)
	p.sample(lr, steps, ceil(warmup, perStep), end/perStep)
	p.scheduleNotes(steps, ceil(warmup, perStep), end/perStep)
	return nil
}

func ceil(a, b int64) int64 { return (a + b - 1) / b }

// sample shows the schedule at its landmarks, in the order of steps.
func (p *Plan) sample(lr optim.Schedule, steps, warmup, end int64) {
	last := steps
	if p.StopAt > 0 {
		last = min(last, p.StopAt)
	}
	notes := map[int64]string{1: "first step"}
	for _, q := range []int64{1, 2, 3} {
		notes[max(1, last*q/4)] = fmt.Sprintf("%d %% of the run", 25*q)
	}
	if warmup > 1 && warmup <= last {
		notes[warmup] = "end of the warm-up"
	}
	if end > 1 && end < last {
		notes[end] = "end of the schedule"
	}
	notes[last] = "last step"
	for _, step := range sortedKeys(notes) {
		p.Rates = append(p.Rates, Rate{step, lr.LR(step), notes[step]})
	}
}

// scheduleNotes points at the two slips that users report most: a schedule that
// ends elsewhere than the run, and a run inside its warm-up.
func (p *Plan) scheduleNotes(steps, warmup, end int64) {
	stop := steps
	if p.StopAt > 0 {
		stop = min(stop, p.StopAt)
	}
	if end > stop {
		p.Notes = append(p.Notes, fmt.Sprintf("the schedule ends at step %s, training stops at step %s: the learning rate does not reach its end", Group(end), Group(stop)))
	}
	if warmup >= stop {
		p.Notes = append(p.Notes, fmt.Sprintf("the warm-up of %s steps covers the whole run of %s", Group(warmup), Group(stop)))
	}
}

// tensors copies the runtime's lines in the model's order.
func (p *Plan) tensors(a asteria.Plan) {
	byName := map[string]asteria.Line{}
	for _, l := range a.Lines {
		byName[l.Name] = l
	}
	for _, t := range p.Model.Shapes() {
		l := byName[t.Name]
		p.Tensors = append(p.Tensors, Tensor{Name: t.Name, Shape: t.Shape, Method: l.Method, Blocks: l.Blocks, Param: 2 * elem * t.Len(), State: l.Total()})
	}
}

// shapes are the model's tensors as the runtime takes them.
func shapes(m model.Config) []asteria.Shape {
	var out []asteria.Shape
	for _, t := range m.Shapes() {
		out = append(out, asteria.Shape{Name: t.Name, Dims: t.Shape, Role: t.Role})
	}
	return out
}
