package config

import "time"

// Default is the configuration of an empty file: the one place where defaults
// are written down.
func Default() Config {
	return Config{
		RunName:    "run",
		Seed:       1,
		SaveFolder: "runs/run",
		Model:      defaultModel(),
		Data:       defaultData(),
		Train: Train{
			GlobalBatchSize: 4096,
			SumGroups:       4,
			MaxGradNorm:     1,
			// spec of SkipStepAdamW in OLMo-core: 128 values, 6 sigma.
			SkipStepWindow: 128,
			SkipStepSigma:  6,
			MaxNonFinite:   3,
		},
		Optimizer: defaultOptimizer(),
		Scheduler: Scheduler{
			Name: "cosine", Units: "steps", AlphaF: 0.1, DecayFraction: 0.1, B: -0.51,
		},
		Loss: Loss{ZLoss: 1e-5, Divisor: "labels"},
		Runtime: Runtime{
			// The asynchronous runtime becomes the default when it exists.
			Device: "cpu", Mode: "native", Staleness: 5, Lag: -1, LagStart: -1, Adopt: "scheduled", ReadyShare: 0.2,
		},
		Parallel:   Parallel{Ranks: 1, Sync: "selective", Roots: "owner", Deadline: time.Minute},
		Tiers:      Tiers{Pressure: true},
		Checkpoint: Checkpoint{Interval: 250, Keep: 3, Resume: "auto", LoadOptimizer: true, LoadTrainer: true},
		Eval:       Eval{Interval: 1000, Tokens: 65536, Metric: "core"},
	}
}

// defaultModel leaves the sizes at zero: they come from a preset or the file.
func defaultModel() Model {
	return Model{
		Arch: "olmo2", Init: "normal", InitStd: 0.02, InitCutoff: 3,
		RopeScaling: RopeScaling{Kind: "none"},
	}
}

func defaultData() Data {
	return Data{
		DType: "auto", EOS: -1, Pad: -1, BOS: -1, Kind: "fsl", SequenceLength: 1024,
		LongDocStrategy: "truncate", SourceGroupSize: 1, Order: "core", SourceSeed: -1, HeldOut: 0.05, Check: "auto",
		InstanceFilter: InstanceFilter{MaxPeriod: 13, MinPeriod: 1, MaxCount: 32},
	}
}

// defaultOptimizer holds the official OLMo-2 values for AdamW and those of the
// reference implementations for the second-order methods.
func defaultOptimizer() Optimizer {
	return Optimizer{
		Name: "adamw", LR: 1e-3, Betas: [2]float64{0.9, 0.95}, Eps: 1e-8, WeightDecay: 0.1,
		DecayNorms: true, PreconditionFrequency: 10, MaxPrecondDim: 2048, FactorBeta: -1,
		Grafting: "adam", Ridge: 1e-7, InitFactor: 0.1, BasisRefresh: "qr",
		BeforeFirst: "graft", RootMethod: "eigen", RefreshPrecision: "auto", MaxFailures: 3,
	}
}
