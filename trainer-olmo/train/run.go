package train

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/asteria-runtime/asteria/coherreg"
	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/trainer-olmo/asteria"
	"github.com/asteria-runtime/asteria/trainer-olmo/checkpoint"
	"github.com/asteria-runtime/asteria/trainer-olmo/checkpoint/safetensors"
	"github.com/asteria-runtime/asteria/trainer-olmo/config"
	"github.com/asteria-runtime/asteria/trainer-olmo/data"
	"github.com/asteria-runtime/asteria/trainer-olmo/model"
	"github.com/asteria-runtime/asteria/trainer-olmo/optim"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
	"github.com/asteria-runtime/asteria/trainer-olmo/plan"
)

// Run trains as the configuration says, from the start or from the newest
// checkpoint of its folder. When the context ends, the step that runs is
// finished, a checkpoint is saved, and the result says that the run was
// interrupted; that is no error.
func Run(ctx context.Context, c *config.Config, o Options) (Result, error) {
	return runAll[float32](ctx, c, o, openSources)
}

// runAll trains on as many ranks as the configuration says, or on the one rank of a
// larger run that the options say.
func runAll[T gemm.Float](ctx context.Context, c *config.Config, o Options, open sources) (Result, error) {
	if o.Comm == nil && c.Parallel.Ranks > 1 {
		return runHere[T](ctx, c, o, open)
	}
	return runOn[T](ctx, c, o, open)
}

func runOn[T gemm.Float](ctx context.Context, c *config.Config, o Options, open sources) (res Result, err error) {
	r := &run[T]{cfg: c, opts: o.withDefaults()}
	defer func() {
		if err != nil && o.Comm != nil {
			o.Comm.Abort(err) // the others must not wait for this rank
		}
		err = errors.Join(err, r.close())
	}()
	if err := r.open(open); err != nil {
		return Result{}, err
	}
	err = r.loop(ctx)
	if !r.lead() {
		return Result{}, err
	}
	res, serr := r.result()
	return res, errors.Join(err, serr)
}

// run is one process's work on a run.
type run[T gemm.Float] struct {
	cfg     *config.Config
	opts    Options
	log     *slog.Logger
	lock    *os.File
	eng     *gemm.Engine
	data    source
	heldOut source // nil: no evaluation
	model   *model.Model[T]
	stepper *stepper[T]
	store   *checkpoint.Store
	metrics *metricsFile
	meter   *meter
	gauges  *gauges
	total   int64 // steps of the run
	stop    int64 // step at which this process ends
	started int64 // step at which it took over
	origin  checkpoint.Origin
	yaml    []byte // config.yaml
	hf      []byte // config.json of the model, nil where Hugging Face has no such class
	flops   float64
	nonEmb  float64 // parameters outside of the embeddings

	batch, evalBatch data.Batch
	clock            clock
	saved            int64 // step of the last checkpoint, -1 for none
	temporary        bool  // that one is ephemeral
	saveStart        time.Time
	saveSeconds      float64 // of a save that ended since the last record, 0 for none
	snapSeconds      float64
	failedSaves      []int64 // [0] is the number of saves that failed
	interrupted      bool
	adoptions        *adoptionLog  // nil without refreshes beside training
	trace            *trace        // nil: none
	nvme             *nvme         // nil: none
	pressure         *pressure     // nil: none
	toldLoad         bool          // that the workers cannot keep up
	slowFor          int           // steps in a row in which the workers looked too slow
	waited, busy     time.Duration // of the totals, at the last record
	met              meeting       // of the ranks, for health.json
}

// clock measures speed; the first step of a process does not count.
type clock struct {
	steps         int64
	seconds       float64
	tokens        int64
	load, compute float64 // of the last step
}

// open builds everything, in the order in which faults are cheapest to find.
func (r *run[T]) open(open sources) (err error) {
	c := r.cfg
	r.log, r.saved, r.failedSaves = r.opts.Logger, -1, make([]int64, 1)
	if r.opts.Comm != nil {
		if err := alone(c, r.opts.Comm.Size()); err != nil {
			return err
		}
	}
	if err := r.inTurn(func() error { return r.openData(open) }); err != nil {
		return err
	}
	if w, ok := r.data.(warner); ok {
		for _, text := range w.Warnings() {
			r.log.Warn("train: " + text)
		}
	}
	if err := r.length(); err != nil {
		return err
	}
	if c.Trace && r.lead() {
		if r.trace, err = openTrace(c.SaveFolder); err != nil {
			return err
		}
	}
	r.eng = gemm.New(c.ComputeThreads())
	if err := r.together(r.build()); err != nil {
		return err
	}
	if err := r.stepper.sharding.gather(); err != nil {
		return err
	}
	if r.lead() {
		err = r.openStore()
	}
	if err := r.together(err); err != nil {
		return err
	}
	if err := r.adopt(); err != nil {
		return fmt.Errorf("train: state of rank 0: %w", err)
	}
	return r.together(r.openFolder())
}

// openData takes the folder and opens the data. On rank 0 it may prepare files that
// the other ranks read.
func (r *run[T]) openData(open sources) (err error) {
	if r.lead() {
		if r.lock, err = lockFolder(r.cfg.SaveFolder); err != nil {
			return err
		}
	}
	r.data, r.heldOut, err = open(r.cfg)
	return err
}

// openStore opens the checkpoints and resumes from the newest.
func (r *run[T]) openStore() (err error) {
	o := checkpoint.Options{Keep: r.cfg.Checkpoint.Keep, FS: r.opts.FS, Logger: r.log}
	if r.store, err = checkpoint.Open(filepath.Join(r.cfg.SaveFolder, storeName), o); err != nil {
		return err
	}
	return r.resume()
}

// length finds the number of steps.
func (r *run[T]) length() error {
	r.total = r.cfg.TotalSteps(r.data.Batches())
	if r.total < 1 {
		return fmt.Errorf("train: a run of %d steps: set train.steps, train.tokens or train.epochs", r.total)
	}
	r.stop = r.total
	if at := int64(r.cfg.Train.StopAt); at > 0 {
		r.stop = min(r.stop, at)
	}
	return nil
}

// build makes the model and everything that updates it.
func (r *run[T]) build() error {
	c := r.cfg
	mc := c.ModelConfig()
	m, err := model.New[T](mc, r.eng)
	if err != nil {
		return err
	}
	r.model = m
	m.Init(uint64(c.Seed))
	seq := c.Data.SequenceLength
	_, nonEmb := mc.ParamCount()
	r.flops, r.nonEmb = flopsPerToken(mc, seq), float64(nonEmb)
	if r.hf, err = safetensors.FormatConfig(mc, safetensors.Transformers4, safetensors.Tokens{}, safetensors.F32); err != nil {
		r.log.Info("train: checkpoints have no config.json for Hugging Face", "err", err)
	}
	s := &stepper[T]{model: m, params: m.Params()}
	s.opts = stepOptions{
		legacy: c.Loss.Divisor == "tokens", zLoss: c.Loss.ZLoss, groups: c.Train.SumGroups,
		microRows: max(1, int(c.Train.MicroBatchSize)/seq), maxNonFinite: int64(c.Train.MaxNonFinite),
	}
	m.ReserveSums(plan.Sums(c, r.size()))
	s.ranks = newRanks(r.opts.Comm, m, int64(c.Parallel.HashEvery))
	r.stepper = s
	if s.sharding, err = newSharding(c, r.opts.Comm, s.params); err != nil {
		return err
	}
	if s.opt, err = newOptimizer(c, s.sharding.mine(s.params), r.eng, r.prepare, r.log); err != nil {
		return err
	}
	if err := s.sharding.describe(c, s.opt); err != nil {
		return err
	}
	if s.skip, err = newSkipRule(c); err != nil {
		return err
	}
	clip := clipOptions(c, r.eng)
	if err := clip.Validate(); err != nil {
		return err
	}
	s.clip = optim.NewClipper(s.params, clip)
	if s.sched, err = c.Schedule(r.total); err != nil {
		return err
	}
	s.pos.Seed, s.pos.DataSeed = c.Seed, c.Data.Seed
	r.origin = checkpoint.Origin{
		Kernel: r.eng.Kernels(), Build: r.opts.Build, Precision: precision[T](), Optimizer: c.Optimizer.Name,
		Fingerprint: r.data.Fingerprint(), BatchTokens: int64(c.Train.GlobalBatchSize), MicroTokens: int64(c.Train.MicroBatchSize),
	}
	return nil
}

// precision names the type of the weights.
func precision[T gemm.Float]() string {
	if _, double := any(T(0)).(float64); double {
		return "float64"
	}
	return "float32"
}

// openFolder writes what a reader of the folder needs and prepares the outputs.
func (r *run[T]) openFolder() (err error) {
	r.started = r.stepper.pos.Step
	if !r.lead() {
		r.metrics, r.meter = new(metricsFile), newMeter(io.Discard, false, r.stop)
		return nil
	}
	folder := r.cfg.SaveFolder
	r.yaml = r.cfg.YAML()
	if err := replaceFile(filepath.Join(folder, configName), r.yaml); err != nil {
		return err
	}
	if r.metrics, err = openMetrics(folder, r.stepper.pos.Step); err != nil {
		return err
	}
	r.gauges = openGauges(r.opts.Energy, r.metrics.energy)
	r.gauges.tiers = newTierGauge(r.stepper.opt)
	if len(r.pending()) > 0 {
		pos := &r.stepper.pos
		if r.adoptions, err = openAdoptions(folder, pos.Step-pos.Skipped-pos.NonFinite); err != nil {
			return err
		}
	}
	r.meter = newMeter(r.opts.Out, r.opts.Live, r.stop)
	if r.started < r.stop && r.stepper.sharding == nil {
		r.store.Reserve(r.state())
	}
	return nil
}

// state is what a checkpoint holds, in place.
func (r *run[T]) state() checkpoint.State {
	st := r.stepper.state()
	st.Origin, st.Config, st.ModelConfig = r.origin, r.yaml, r.hf
	st.Runtime = append(r.counters(), r.pending()...)
	if o, ok := r.stepper.opt.(tiered); ok {
		st.Freeze = o.Freeze
	}
	return st
}

// counters are the part of the state that never changes a result.
func (r *run[T]) counters() []param.Section {
	return []param.Section{{Name: "saves_failed", I64: r.failedSaves}}
}

// prepare gives the second-order runtime its observer, its NVMe tier, and the
// solvers of the options.
func (r *run[T]) prepare(o *asteria.Options) error {
	o.Async.Observer, o.Solvers = r.observer(), r.opts.Solvers
	if c := r.opts.Comm; c != nil {
		r.cfg.Parallel.Share(o, c.Size())
		if o.Peers != nil {
			o.Peers.Comm = c
		}
	}
	return r.openNVMe(o)
}

// observer is what the runtime tells of its refreshes.
func (r *run[T]) observer() asteria.Observer {
	o := asteria.Observer{Adopted: func(a coherreg.Adoption) { r.adoptions.add(a) }}
	if r.trace != nil {
		o.Refreshed, o.Waited = r.trace.refreshed, r.trace.waited
	}
	return o
}

// close ends everything that was begun, also after a failure halfway.
func (r *run[T]) close() error {
	var errs []error
	if r.store != nil {
		errs = append(errs, r.store.Close())
	}
	if r.stepper != nil {
		if o, ok := r.stepper.opt.(interface{ Close() }); ok {
			o.Close()
		}
	}
	errs = append(errs, r.nvme.close())
	if r.model != nil {
		r.model.Close()
	}
	if r.eng != nil {
		r.eng.Close()
	}
	errs = append(errs, r.adoptions.close(), r.trace.close(), r.gauges.close())
	if r.metrics != nil {
		errs = append(errs, r.metrics.close())
	}
	for _, s := range []source{r.heldOut, r.data} {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	if r.lock != nil {
		errs = append(errs, r.lock.Close())
	}
	return errors.Join(errs...)
}

// result is read back from the folder, so that it covers all processes.
func (r *run[T]) result() (Result, error) {
	res, err := Summarize(r.cfg.SaveFolder)
	res.Optimizer, res.TotalSteps = r.cfg.Optimizer.Name, r.total
	res.Interrupted, res.Resumed = r.interrupted, r.started
	return res, err
}
