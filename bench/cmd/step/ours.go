package main

import (
	"math/rand/v2"
	"runtime"
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
	allocs uint64  // heap allocations in timed steps
	timed  uint64
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
	o.loss = model.LossOptions{Divisor: o.batch.Divisor(false)}
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

// run returns the seconds of n steps. Tokens are drawn outside the time, as on
// the other side.
func (o *ours) run(n int) ([]float64, error) {
	times := make([]float64, n)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range times {
		for j := range o.batch.Tokens {
			o.batch.Tokens[j] = o.rng.Int32N(int32(o.model.Config().VocabSize))
		}
		start := time.Now()
		if err := o.step(); err != nil {
			return nil, err
		}
		times[i] = time.Since(start).Seconds()
	}
	runtime.ReadMemStats(&after)
	o.allocs += after.Mallocs - before.Mallocs
	o.timed += uint64(n)
	return times, nil
}

func (o *ours) step() error {
	o.steps++
	o.clip.Zero()
	s, err := o.model.LossGrad(o.batch, o.loss, nil)
	if err != nil {
		return err
	}
	o.last = s.CE / o.loss.Divisor
	o.clip.Clip(o.clip.Norm(), o.steps)
	return o.opt.Step(o.steps, o.lr)
}

func (o *ours) close() {
	if c, ok := o.opt.(interface{ Close() }); ok {
		c.Close()
	}
	o.model.Close()
	o.engine.Close()
}
