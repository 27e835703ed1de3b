package main

import (
	"math/rand/v2"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/trainer-olmo/asteria"
	"github.com/asteria-runtime/asteria/trainer-olmo/config"
	"github.com/asteria-runtime/asteria/trainer-olmo/model"
	"github.com/asteria-runtime/asteria/trainer-olmo/optim"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// ours takes optimizer steps with the trainer's own parts, as package train
// composes them: gradients, global norm and clip, update.
type ours struct {
	engine *gemm.Engine
	model  *model.Model[float32]
	clip   *optim.Clipper[float32]
	opt    param.Optimizer
	batch  model.Batch
	loss   model.LossOptions
	lr     float64
	rng    *rand.Rand
	steps  int64
	last   float64 // loss of the last step
}

func newOurs(c *config.Config, threads int) (*ours, error) {
	o := &ours{engine: gemm.New(threads), lr: c.Optimizer.LR, rng: rand.New(rand.NewPCG(1, 1))}
	var err error
	if o.model, err = model.New[float32](c.ModelConfig(), o.engine); err != nil {
		return nil, err
	}
	o.model.Init(uint64(c.Seed))
	o.clip = optim.NewClipper(o.model.Params(), optim.ClipOptions{MaxNorm: 1, Engine: o.engine})
	if o.opt, err = optimizer(c, o); err != nil {
		return nil, err
	}
	seq := c.Data.SequenceLength
	rows := int(c.Train.GlobalBatchSize) / seq
	o.batch = model.Batch{Tokens: make([]int32, rows*seq), Rows: rows, Seq: seq}
	o.loss = model.LossOptions{Divisor: o.batch.Divisor(false), Fresh: true}
	return o, nil
}

func optimizer(c *config.Config, o *ours) (param.Optimizer, error) {
	if c.Optimizer.Name == "adamw" {
		return optim.NewAdamW(o.model.Params(), optim.AdamWOptions{Betas: c.Optimizer.Betas, Eps: c.Optimizer.Eps,
			WeightDecay: c.Optimizer.WeightDecay, Engine: o.engine}), nil
	}
	opts, err := c.AsteriaOptions()
	if err != nil {
		return nil, err
	}
	return asteria.New(o.model.Params(), o.engine, opts)
}

// sample is one step: seconds, and seconds of CPU over all threads. On a busy
// machine the second says more.
type sample [2]float64

// cpuTime returns the CPU seconds that this process has used.
func cpuTime() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// run times n steps. Tokens are drawn outside the time, as on the other side.
func (o *ours) run(n int) ([]sample, error) {
	times := make([]sample, n)
	for i := range times {
		for j := range o.batch.Tokens {
			o.batch.Tokens[j] = o.rng.Int32N(int32(o.model.Config().VocabSize))
		}
		start, cpu := time.Now(), cpuTime()
		if err := o.step(); err != nil {
			return nil, err
		}
		times[i] = sample{time.Since(start).Seconds(), cpuTime() - cpu}
	}
	return times, nil
}

func (o *ours) step() error {
	o.steps++
	s, err := o.model.LossGrad(o.batch, o.loss, nil)
	if err != nil {
		return err
	}
	o.last = s.CE / o.loss.Divisor
	norm := o.clip.Norm()
	coef, _ := o.clip.Factor(norm, o.steps)
	if s, ok := o.opt.(interface {
		StepScaled(step int64, lr, scale float64) error
	}); ok { // clips as it reads, as in package train
		return s.StepScaled(o.steps, o.lr, coef)
	}
	o.clip.Clip(norm, o.steps)
	return o.opt.Step(o.steps, o.lr)
}

// allocations returns the heap objects that n steps allocate, by the runtime's
// profile of every allocation. What the runtime allocates for itself is not
// counted: stacks of new threads, and the record of a goroutine that parks, which
// it keeps for reuse until the next collection.
func (o *ours) allocations(n int) (int64, error) {
	rate := runtime.MemProfileRate
	runtime.MemProfileRate = 1
	defer func() { runtime.MemProfileRate = rate }()
	before := profiledObjects()
	if _, err := o.run(n); err != nil {
		return 0, err
	}
	// The times that run returns are one object of our own.
	return profiledObjects() - before - 1, nil
}

func profiledObjects() (objects int64) {
	// An allocation enters the profile two collections later.
	runtime.GC()
	runtime.GC()
	records := make([]runtime.MemProfileRecord, 4096)
	n, ok := runtime.MemProfile(records, true)
	for !ok {
		records = make([]runtime.MemProfileRecord, 2*n)
		n, ok = runtime.MemProfile(records, true)
	}
	for _, r := range records[:n] {
		if inStep(r.Stack()) {
			objects += r.AllocObjects
		}
	}
	return objects
}

// inStep reports whether the stack is that of an allocation by our code: below run,
// or on a worker of the engine.
func inStep(stack []uintptr) bool {
	frames := runtime.CallersFrames(stack)
	for {
		f, more := frames.Next()
		if f.Function == "runtime.acquireSudog" {
			return false
		}
		if strings.HasSuffix(f.Function, "(*ours).run") || strings.Contains(f.Function, "asteria/gemm.") {
			return true
		}
		if !more {
			return false
		}
	}
}

func (o *ours) close() {
	if c, ok := o.opt.(interface{ Close() }); ok {
		c.Close()
	}
	o.model.Close()
	o.engine.Close()
}
