package plan

import (
	"fmt"

	"github.com/asteria-runtime/asteria/trainer-olmo/asteria"
	"github.com/asteria-runtime/asteria/trainer-olmo/config"
	"github.com/asteria-runtime/asteria/trainer-olmo/model"
	"github.com/asteria-runtime/asteria/trainer-olmo/parallel"
)

// Note: peak memory. The lines of [Plan.Memory] add up to the most anonymous
// memory (RssAnon of /proc/self/status) that a run has at any time, so they count
// what is allocated once and kept: the trainer allocates nothing per step. What is
// allocated and never touched takes no memory; there is none of it worth a line.
// Two things keep the sum true that are not in it: the command limits the Go heap
// to [Plan.HeapLimit], so that garbage cannot pile up beside the state, and it
// gives a finished run's memory back before the report is drawn.

// Bytes is the memory of one class of tensors.
type Bytes struct {
	Class    string
	Bytes    int64
	What     string
	Estimate bool // not exact
}

// elem is the size of an element: training runs in float32.
const elem = 4

// memory adds up the classes.
func (p *Plan) memory(c *config.Config) error {
	weights := p.Parameters * elem
	p.add("weights", weights, "float32", false)
	p.add("gradients", weights, "float32, summed over micro-batches", false)
	p.add("pending sums", elem*Sums(c, p.Ranks).Elements(p.Model), "gradients of groups that wait for their neighbours, see train.sum_groups", false)
	state, err := p.optimizerMemory(c)
	if err != nil {
		return err
	}
	if len(p.Shares) > 0 {
		p.add("gathered state", p.StateBytes-p.Shares[0], "of the other ranks, on rank 0 while a checkpoint is made", false)
	}
	if !c.Checkpoint.Sync {
		p.add("checkpoint snapshot", weights+state, "copy that an asynchronous save writes from", false)
	}
	p.passes(c)
	p.add("data", dataBytes(p, c), "batches and the order of the instances", true)
	p.add("program", programBytes(p.Total()), "binary, stacks, the collector's tables", true)
	return nil
}

func (p *Plan) add(class string, bytes int64, what string, estimate bool) {
	if bytes > 0 {
		p.Memory = append(p.Memory, Bytes{class, bytes, what, estimate})
	}
}

// passes adds the model's buffers: those of a training pass, kept from step to
// step, and those of an evaluation, kept from one to the next.
func (p *Plan) passes(c *config.Config) {
	rows := max(1, p.MicroTokens/int64(p.Sequence))
	p.add("activations", model.WorkBytes[float32](p.Model, int(rows), p.Sequence, c.ComputeThreads()),
		fmt.Sprintf("one micro-batch of %s tokens", Group(p.MicroTokens)), false)
	if rows := c.EvalRows(); rows > 0 {
		p.add("evaluation", model.LossBytes[float32](p.Model, rows, p.Sequence),
			fmt.Sprintf("one pass over %s tokens", Group(int64(rows*p.Sequence))), false)
	}
}

// Sums is what a rank keeps of partial sums of gradients: enough for any rank, and for
// the shorter batch at the end of an epoch where there is one.
func Sums(c *config.Config, ranks int) model.Sums {
	seq := c.Data.SequenceLength
	rows, micro := int(c.Train.GlobalBatchSize)/seq, max(1, int(c.Train.MicroBatchSize)/seq)
	least := rows
	if c.Data.KeepLast {
		least = 1
	}
	var sums model.Sums
	m := c.ModelConfig()
	for n := least; n <= rows; n++ {
		for rank := range ranks {
			s := model.Share{Groups: c.Train.SumGroups, Rows: n}
			s.First, s.Last = parallel.Rows(n, rank, ranks)
			sums = sums.Max(model.SumsFor(m, s, seq, micro, ranks == 1))
		}
	}
	return sums
}

// dataBytes is what the loader keeps: a batch and its masks for training and
// evaluation, and four bytes for each instance of an epoch.
func dataBytes(p *Plan, c *config.Config) int64 {
	const perToken = 4 + 1 // the id and a mask
	instances := p.EpochTokens / int64(p.Sequence)
	return perToken*(p.BatchTokens+int64(c.EvalRows()*p.Sequence)) + 4*instances
}

// programBytes is the memory of the program itself beside so many bytes of
// everything else: about 8 MiB for binary, stacks and small objects, 3 MiB for what huge
// pages reach over the ends of what lies on them, and a five-hundredth for the collector's
// tables and the rounding of sizes.
func programBytes(rest int64) int64 { return 11<<20 + rest/500 }

// optimizerMemory adds the optimizer's classes and returns the bytes that
// a checkpoint holds of it.
func (p *Plan) optimizerMemory(c *config.Config) (int64, error) {
	if !c.Optimizer.SecondOrder() {
		return p.firstOrder(c)
	}
	o, err := c.AsteriaOptions()
	if err != nil {
		return 0, err
	}
	a, err := asteria.PlanFor[float32](shapes(p.Model), c.ComputeThreads(), o)
	if err != nil {
		return 0, err
	}
	p.tensors(a)
	pending := a.Pending
	if a, err = p.shard(c, a, o); err != nil {
		return 0, err
	}
	if ordinal, _, err := c.Runtime.Accelerator(); err == nil && ordinal >= 0 {
		p.onDevice(a.Device)
	}
	away := map[string]int64{}
	if o.Tiers != nil {
		if err := p.checkTiers(c, a); err != nil {
			return 0, err
		}
		away = p.place(c, a)
	}
	for _, class := range []struct {
		key, name, what string
	}{
		{asteria.ClassMoments, "optimizer moments", "first and second, those of AdamW included"},
		{asteria.ClassFactors, "factors", "statistics of the blocks"},
		{asteria.ClassRoots, "roots and bases", "inverse roots, eigenbases, gains"},
		{asteria.ClassCounter, "counters", "of the blocks"},
		{asteria.ClassScratch, "scratch", "of the update"},
		{asteria.ClassSolver, "solver", "eigendecompositions and roots"},
		{asteria.ClassKernels, "kernels", "packed panels of the workers' engines"},
	} {
		p.addPlaced(class.name, a.Class(class.key), away[class.key], class.what, class.key == asteria.ClassSolver)
	}
	p.jobs(a, away[asteria.ClassJobs])
	if o.Tiers != nil {
		// A save streams state and results object by object. What a step changes
		// before its turn is copied into the tiers, within their budgets.
		return 0, nil
	}
	return p.StateBytes + pending, a.Check(o.MemoryLimit)
}

// onDevice lists what a run takes of an accelerator's memory.
func (p *Plan) onDevice(d asteria.DeviceNeed) {
	p.Device = []Bytes{
		{"state", d.State, "of the blocks; in host memory where the device shares it or copies are staged", false},
		{"operands", d.Operands, "gradients, parameters and working memory of the steps", true},
		{"refreshes", d.Refreshes, "matrices of roots and decompositions", true},
		{"libraries", d.Libraries, "cuBLAS and cuSOLVER", true},
	}
}

// addPlaced adds the part of a class that is in RAM and tells how much is not.
func (p *Plan) addPlaced(class string, bytes, away int64, what string, estimate bool) {
	if away > 0 {
		what += ", " + Size(away) + " more on NVMe"
	}
	p.add(class, bytes-away, what, estimate)
}

// jobs adds the refreshes in flight. A result that was adopted leaves its memory
// to the next one of its block: that is the block's spare slot.
func (p *Plan) jobs(a asteria.Plan, away int64) {
	jobs := a.Class(asteria.ClassJobs) - away
	if a.Pending == 0 {
		p.add("refresh jobs", jobs, "snapshot and result of the workers' refreshes", false)
		return
	}
	results := min(a.Pending, jobs)
	p.add("snapshots in flight", jobs-results, "statistics that refreshes beside training work on", false)
	p.addPlaced("spare slots", results+away, away, "results of these refreshes until they are adopted", false)
}

// firstOrder adds the moments of a method without factors. They stay in RAM, which
// the tiers' budget bounds for them, too.
func (p *Plan) firstOrder(c *config.Config) (int64, error) {
	moments, what := int64(2), "first and second"
	if c.Optimizer.Name == "lionw" {
		moments, what = 1, "first"
	}
	if err := p.shardMoments(c, moments); err != nil {
		return 0, err
	}
	p.add("optimizer moments", p.Fullest(), what, false)
	for _, t := range p.Model.Shapes() {
		p.Tensors = append(p.Tensors, Tensor{Name: t.Name, Shape: t.Shape, Method: c.Optimizer.Name, Param: 2 * elem * t.Len(), State: moments * elem * t.Len()})
	}
	state := p.StateBytes
	if ram := c.RAMBudget(); ram > 0 && state > ram {
		return 0, fmt.Errorf("%w: the moments of %s need %s, tiers.device %s + tiers.host %s allow %s, %s too few; raise a limit: only a second-order optimizer.name can use tiers.nvme",
			ErrOverBudget, c.Optimizer.Name, Size(state), Size(int64(c.Tiers.Device)), Size(int64(c.Tiers.Host)), Size(ram), Size(state-ram))
	}
	return state, nil
}

// Total is the sum over all classes.
func (p *Plan) Total() int64 {
	n := int64(0)
	for _, b := range p.Memory {
		n += b.Bytes
	}
	return n
}

// Check refuses a plan that needs more than limit bytes and shows the
// arithmetic. A limit of 0 is none.
func (p *Plan) Check(limit int64) error {
	if total := p.Total(); limit > 0 && total > limit {
		sum := ""
		for i, b := range p.Memory {
			if i > 0 {
				sum += " + "
			}
			sum += fmt.Sprintf("%s %s", b.Class, Size(b.Bytes))
		}
		return fmt.Errorf("%w: %s = %s, the limit is %s", ErrOverBudget, sum, Size(total), Size(limit))
	}
	return nil
}

// HeapLimit is the limit of the Go heap under which a run of this plan keeps to
// it, for [runtime/debug.SetMemoryLimit]. The collector then runs when garbage
// exceeds a few megabytes, and not as rarely as the size of the state would make
// it; with less room than that it would run all the time.
func (p *Plan) HeapLimit() int64 {
	heap := p.Total() - p.offHeap
	return heap + 12<<20 + heap/256
}
