package config

import "time"

// Config is the whole configuration of a run. The zero value is not useful:
// start from [Default] or [Load].
//
// Tags: `yaml` is the key, `doc` its meaning, `oneof` the allowed words (and no
// word, with `empty:"ok"`), `range` the allowed interval of a number in
// mathematical notation.
type Config struct {
	RunName    string     `yaml:"run_name" doc:"name of the run, used in reports"`
	Seed       int64      `yaml:"seed" range:"[0,inf)" doc:"seed of the initial weights"`
	SaveFolder string     `yaml:"save_folder" doc:"run folder: config.yaml, metrics.jsonl, checkpoints, report"`
	Model      Model      `yaml:"model" doc:"the network"`
	Data       Data       `yaml:"data" doc:"what is read, and in which order"`
	Train      Train      `yaml:"train" doc:"length, batch and threads"`
	Optimizer  Optimizer  `yaml:"optimizer" doc:"the update rule"`
	Scheduler  Scheduler  `yaml:"scheduler" doc:"the learning rate over the run"`
	Loss       Loss       `yaml:"loss" doc:"the loss and its divisor"`
	Runtime    Runtime    `yaml:"runtime" doc:"where and when refreshes run"`
	Tiers      Tiers      `yaml:"tiers" doc:"memory limits of the optimizer's state"`
	Parallel   Parallel   `yaml:"parallel" doc:"data-parallel ranks"`
	Checkpoint Checkpoint `yaml:"checkpoint" doc:"saving and resuming"`
	Eval       Eval       `yaml:"eval" doc:"held-out loss"`
	Trace      bool       `yaml:"trace" doc:"write trace.json, a Chrome/Perfetto trace of the run"`

	// Legacy says that the file was an OLMo train.py configuration. It is not a
	// key: the values it implies are written out in the resolved file.
	Legacy bool `yaml:"-"`
	// Notices are what the user should be told once at the start, such as a
	// known key without effect.
	Notices []string `yaml:"-"`
}

// Model describes the network: a preset, explicit values, or a preset with some
// values replaced. Names are those of OLMo-core; 0 and "" take the default of
// the architecture, which the resolved file states.
type Model struct {
	Preset            string      `yaml:"preset" doc:"a published size, such as olmo2_1B; the keys below then replace single values of it"`
	Arch              string      `yaml:"arch" oneof:"olmo1 olmo2 olmo3" doc:"generation: olmo1 pre-norm, olmo2 norms on the outputs and QK-norm, olmo3 with sliding windows"`
	DModel            int         `yaml:"d_model" range:"[0,1048576]" doc:"width of the residual stream"`
	NLayers           int         `yaml:"n_layers" range:"[0,1048576]" doc:"number of blocks"`
	NHeads            int         `yaml:"n_heads" range:"[0,1048576]" doc:"query heads"`
	NKVHeads          int         `yaml:"n_kv_heads" range:"[0,1048576]" doc:"key and value heads, 0 = n_heads"`
	HeadDim           int         `yaml:"head_dim" range:"[0,1048576]" doc:"width of a head, 0 = d_model / n_heads"`
	HiddenSize        int         `yaml:"hidden_size" range:"[0,1048576]" doc:"width of the MLP, 0 = 8/3 d_model rounded up to a multiple of 256"`
	VocabSize         int         `yaml:"vocab_size" range:"[0,1048576]" doc:"rows of embedding and head, 0 = that of bytes, or of the token files' metadata"`
	MaxSequenceLength int         `yaml:"max_sequence_length" range:"[0,16777216]" doc:"written to exported files, 0 = data.sequence_length"`
	RopeTheta         float64     `yaml:"rope_theta" range:"[0,inf)" doc:"base of the rotary frequencies, 0 = 500000 (olmo1 10000)"`
	RopeScaling       RopeScaling `yaml:"rope_scaling" doc:"YaRN scaling of the layers with full attention"`
	NormEps           float64     `yaml:"norm_eps" range:"[0,1)" doc:"added to the mean square or variance, 0 = 1e-6 (olmo1 1e-5)"`
	ClipQKV           float64     `yaml:"clip_qkv" range:"[0,inf)" doc:"clamp of the q, k and v projections, 0 = none"`
	TieEmbeddings     bool        `yaml:"tie_word_embeddings" doc:"use the embedding as output projection"`
	SlidingWindow     []int       `yaml:"sliding_window" range:"[-1,inf)" doc:"window of layer i is item i modulo the length, -1 = full; empty = full (olmo3 [4096, 4096, 4096, -1])"`
	SlidingLastLayer  bool        `yaml:"sliding_last_layer" doc:"keep the window on the last layer, which otherwise sees everything"`
	Norm              string      `yaml:"norm" oneof:"layer rms" doc:"kind of norm: layer without parameters (olmo1) or rms"`
	NormPlace         string      `yaml:"norm_place" oneof:"pre post" doc:"norms on the input (olmo1) or on the output of attention and MLP"`
	QKNorm            string      `yaml:"qk_norm" oneof:"none full" doc:"RMSNorm over the projected width of q and k, or none (olmo1)"`
	Init              string      `yaml:"init_method" oneof:"normal mitchell full_megatron llama llama_depth fan_in" doc:"initialisation scheme"`
	InitStd           float64     `yaml:"init_std" range:"(0,inf)" doc:"standard deviation of the initial weights"`
	InitCutoff        float64     `yaml:"init_cutoff" range:"[0,inf)" doc:"truncation in standard deviations, 0 = none"`
	EmbeddingInitStd  float64     `yaml:"embedding_init_std" range:"[0,inf)" doc:"standard deviation of the embedding, 0 = the scheme's"`
	ScaleEmbInit      bool        `yaml:"scale_emb_init" doc:"multiply the embedding's standard deviation by the root of d_model (full_megatron)"`
}

// RopeScaling stretches the rotary frequencies beyond the context of training.
type RopeScaling struct {
	Kind               string  `yaml:"kind" oneof:"none yarn linear abf llama3" doc:"none, yarn (OLMo-3), linear, abf (new base) or llama3"`
	Factor             float64 `yaml:"factor" range:"[0,inf)" doc:"new context over the old one (yarn, linear, llama3)"`
	BetaFast           float64 `yaml:"beta_fast" range:"[0,inf)" doc:"rotations above which a frequency is kept, 0 = 32 (yarn)"`
	BetaSlow           float64 `yaml:"beta_slow" range:"[0,inf)" doc:"rotations below which a frequency is divided by the factor, 0 = 1 (yarn)"`
	OldContextLen      int     `yaml:"old_context_len" range:"[0,inf)" doc:"context of training, 0 = 8192 (yarn, llama3)"`
	AttentionFactor    float64 `yaml:"attention_factor" range:"[0,inf)" doc:"multiplies cos and sin, 0 = 0.1 ln(factor) + 1 (yarn)"`
	NewTheta           float64 `yaml:"new_theta" range:"[0,inf)" doc:"the new base (abf)"`
	LowFreqProportion  float64 `yaml:"low_freq_proportion" range:"[0,1)" doc:"lower bound of the interpolated band (llama3)"`
	HighFreqProportion float64 `yaml:"high_freq_proportion" range:"[0,1)" doc:"upper bound of the interpolated band, 0 = 0.25 (llama3)"`
}

// Data says which tokens are read. Exactly one of Corpus and Paths is used.
type Data struct {
	Corpus          string         `yaml:"corpus" oneof:"goroot" empty:"ok" doc:"built-in corpus: goroot, the Go source tree of the installed toolchain, as bytes"`
	Paths           []string       `yaml:"paths" doc:"token files (raw little-endian), or text files, which are tokenized into the cache first"`
	ExpandGlob      bool           `yaml:"expand_glob" doc:"each of paths is a shell pattern"`
	LabelMaskPaths  []string       `yaml:"label_mask_paths" doc:"for each token file a file of bool bytes, 0 = do not predict"`
	Tokenizer       string         `yaml:"tokenizer" doc:"byte, or the path of a tokenizer.json; empty = byte for text, none for token files"`
	DType           string         `yaml:"dtype" oneof:"auto uint8 uint16 uint32 uint64" doc:"width of the token files; auto = the smallest that holds the vocabulary"`
	EOS             int            `yaml:"eos_token_id" range:"[-1,inf)" doc:"end-of-document token, -1 = the tokenizer's"`
	Pad             int            `yaml:"pad_token_id" range:"[-1,inf)" doc:"padding token, -1 = the tokenizer's"`
	BOS             int            `yaml:"bos_token_id" range:"[-1,inf)" doc:"begin-of-document token, -1 = none"`
	Kind            string         `yaml:"kind" oneof:"fsl padded packed" doc:"fsl: chunks of fixed length; padded: one document an instance; packed: whole documents, best fit"`
	SequenceLength  int            `yaml:"sequence_length" range:"[2,16777216]" doc:"tokens in one instance"`
	MaxTargetLength int            `yaml:"max_target_sequence_length" range:"[0,16777216]" doc:"keep pieces of this many tokens together in the order, 0 = sequence_length (fsl)"`
	LongDocStrategy string         `yaml:"long_doc_strategy" oneof:"truncate fragment" doc:"what happens to documents longer than an instance (packed)"`
	SourceGroupSize int            `yaml:"source_group_size" range:"[1,inf)" doc:"consecutive files that are packed together (packed)"`
	DocLengths      bool           `yaml:"generate_doc_lengths" doc:"attend only within a document (document mask)"`
	InstanceFilter  InstanceFilter `yaml:"instance_filter" doc:"mask instances that repeat themselves"`
	Order           string         `yaml:"order" oneof:"core legacy" doc:"order of the instances: that of OLMo-core or of the legacy trainer"`
	Seed            int64          `yaml:"seed" range:"[0,inf)" doc:"seed of the order of the instances"`
	KeepLast        bool           `yaml:"keep_last" doc:"serve the incomplete last batch of an epoch too (legacy order)"`
	SourceSeed      int64          `yaml:"source_permutation_seed" range:"[-1,inf)" doc:"shuffle the files with this seed before they are numbered, -1 = do not"`
	HeldOut         float64        `yaml:"held_out" range:"[0,1)" doc:"share of the tokens at the end that is kept for evaluation"`
	HeldOutTokens   Count          `yaml:"held_out_tokens" range:"[0,inf)" doc:"tokens kept for evaluation, 0 = held_out"`
	CacheFolder     string         `yaml:"cache_folder" doc:"where prepared text lies, empty = the user's cache folder"`
	MaxBytes        Size           `yaml:"max_bytes" range:"[0,inf)" doc:"bytes of text taken from the corpus, 0 = 20MB"`
	GoRoot          string         `yaml:"go_root" doc:"root of the Go tree for corpus goroot, empty = ask the go command"`
	Check           string         `yaml:"check" oneof:"auto full none" doc:"how much of the token files is checked at the start: auto = all up to 4 GiB and the start of each file beyond"`
}

// InstanceFilter finds instances in which a short run of tokens repeats.
type InstanceFilter struct {
	Enabled   bool `yaml:"enabled" doc:"apply the filter"`
	MaxPeriod int  `yaml:"repetition_max_period" range:"[1,1024]" doc:"longest repeating run"`
	MinPeriod int  `yaml:"repetition_min_period" range:"[1,1024]" doc:"shortest repeating run"`
	MaxCount  int  `yaml:"repetition_max_count" range:"[1,inf)" doc:"repetitions at which the instance is masked"`
}

// Train says how long and how wide training is. Exactly one of Steps, Tokens
// and Epochs is positive.
type Train struct {
	Steps            Count   `yaml:"steps" range:"[0,inf)" doc:"length in optimizer steps"`
	Tokens           Count   `yaml:"tokens" range:"[0,inf)" doc:"length in tokens, rounded up to whole steps"`
	Epochs           Count   `yaml:"epochs" range:"[0,inf)" doc:"length in passes over the data"`
	StopAt           Count   `yaml:"stop_at" range:"[0,inf)" doc:"stop after this step without changing the schedule, 0 = at the end"`
	GlobalBatchSize  Count   `yaml:"global_batch_size" range:"[1,inf)" doc:"tokens in one optimizer step, a multiple of data.sequence_length"`
	MicroBatchSize   Count   `yaml:"micro_batch_size" range:"[0,inf)" doc:"tokens in one forward pass, divides global_batch_size, 0 = all of it; results do not depend on it"`
	SumGroups        int     `yaml:"sum_groups" range:"[1,1024]" doc:"groups of a batch's sequences, a power of two, whose gradients are added as a binary tree: so many ranks, or half, a quarter, …, train the run of one to the bit; 1 = all from left to right"`
	Threads          int     `yaml:"threads" range:"[0,4096]" doc:"computing threads, 0 = one per core; results do not depend on it"`
	MaxGradNorm      float64 `yaml:"max_grad_norm" range:"[0,inf)" doc:"clip of the global gradient norm, 0 = none"`
	MaxGradNormRatio float64 `yaml:"max_grad_norm_ratio" range:"[0,inf)" doc:"clip each parameter's gradient norm at this multiple of its moving average instead, 0 = off"`
	SkipStep         bool    `yaml:"skip_step" doc:"skip a step whose loss or gradient norm is an outlier"`
	SkipStepWindow   int     `yaml:"skip_step_window" range:"[2,1048576]" doc:"losses and norms remembered by skip_step"`
	SkipStepSigma    float64 `yaml:"skip_step_sigma" range:"(0,inf)" doc:"standard deviations above the mean that make an outlier"`
	MaxNonFinite     int     `yaml:"max_non_finite" range:"[1,inf)" doc:"consecutive steps with a NaN or an infinity, which are given up, that end the run"`
}

// Optimizer chooses the update rule. Matrix parameters inside the blocks go to
// the named method; embeddings, head and norms go to AdamW.
type Optimizer struct {
	Name                  string     `yaml:"name" oneof:"adamw lionw shampoo soap kl-shampoo kl-soap eigen-shampoo" doc:"the method"`
	LR                    float64    `yaml:"lr" range:"(0,inf)" doc:"peak learning rate"`
	AuxLR                 float64    `yaml:"aux_lr" range:"[0,inf)" doc:"peak learning rate of the AdamW part of the second-order methods, 0 = lr"`
	Betas                 [2]float64 `yaml:"betas" range:"[0,1)" doc:"decay of the first and second moment"`
	Eps                   float64    `yaml:"eps" range:"[0,1)" doc:"added to the root of the second moment"`
	WeightDecay           float64    `yaml:"weight_decay" range:"[0,inf)" doc:"decoupled weight decay, times the learning rate"`
	DecayEmbeddings       bool       `yaml:"decay_embeddings" doc:"apply weight decay to the embedding"`
	DecayNorms            bool       `yaml:"decay_norms" doc:"apply weight decay to the norms"`
	PreconditionFrequency int        `yaml:"precondition_frequency" range:"[1,1000000]" doc:"steps between two refreshes of a block"`
	MaxPrecondDim         int        `yaml:"max_precond_dim" range:"[1,65536]" doc:"longest side with a factor; longer ones are split (shampoo, kl) or left alone (soap)"`
	Stagger               bool       `yaml:"stagger" doc:"spread the refreshes of the blocks over the interval"`
	OneSidedEmbeddings    bool       `yaml:"one_sided_embeddings" doc:"give embedding and head a factor on the d_model side"`
	FactorBeta            float64    `yaml:"factor_beta" range:"[-1,1)" doc:"decay of the factors (soap, kl), -1 = the second of betas"`
	StartStep             int        `yaml:"start_step" range:"[0,inf)" doc:"first preconditioned step (shampoo, eigen-shampoo), 0 = precondition_frequency"`
	Grafting              string     `yaml:"grafting" oneof:"adam none sgd rmsprop adagrad" doc:"method whose step length is taken (shampoo, eigen-shampoo)"`
	BeforeFirst           string     `yaml:"before_first" oneof:"graft identity" doc:"what stands in for a root that is not there yet (shampoo)"`
	Ridge                 float64    `yaml:"ridge" range:"(0,1)" doc:"ridge relative to the largest eigenvalue (shampoo)"`
	InitFactor            float64    `yaml:"init_factor" range:"(0,inf)" doc:"first eigenvalue of every factor (kl)"`
	BasisRefresh          string     `yaml:"basis_refresh" oneof:"qr eigh" doc:"how a basis is renewed: one step of orthogonal iteration, or a full eigendecomposition"`
	NullTolerance         float64    `yaml:"null_tolerance" range:"[0,1)" doc:"eigenvalues of a first factor up to this part of the largest count as zero, and their eigenvectors are chosen by convention and not by rounding (soap, kl-soap), 0 = off"`
	RootMethod            string     `yaml:"root_method" oneof:"eigen coupled-newton higher-order" doc:"how inverse roots are computed (shampoo)"`
	RefreshPrecision      string     `yaml:"refresh_precision" oneof:"auto single double" doc:"arithmetic of the refreshes; auto = float32, and float64 for ill-conditioned roots"`
	MaxFailures           int        `yaml:"max_failures" range:"[0,inf)" doc:"consecutive failed refreshes of a block that end the run, 0 = any number"`
}

// Scheduler is the learning rate as a function of the step. Warmup, TMax and
// Decay are in Units.
type Scheduler struct {
	Name                string  `yaml:"name" oneof:"cosine linear constant constant_with_warmup half_cosine inverse_sqrt wsd wsds power cosine_linear_decay cosine_linear_envelope max exponential" doc:"shape after the warm-up"`
	Units               string  `yaml:"units" oneof:"steps tokens" doc:"unit of warmup, t_max and decay"`
	Warmup              Count   `yaml:"warmup" range:"[0,inf)" doc:"length of the linear warm-up"`
	WarmupFraction      float64 `yaml:"warmup_fraction" range:"[0,1)" doc:"warm-up as a share of the run, used when warmup is 0"`
	WarmupMinLR         float64 `yaml:"warmup_min_lr" range:"[0,inf)" doc:"learning rate at which the warm-up starts"`
	TMax                Count   `yaml:"t_max" range:"[0,inf)" doc:"end of the schedule, 0 = end of the run"`
	AlphaF              float64 `yaml:"alpha_f" range:"[0,1]" doc:"final learning rate as a share of the peak"`
	Decay               Count   `yaml:"decay" range:"[0,inf)" doc:"length of the final linear decay (wsd, wsds, cosine_linear_decay, power)"`
	DecayFraction       float64 `yaml:"decay_fraction" range:"[0,1]" doc:"final decay as a share of the run, used when decay is 0"`
	DecayMinLR          float64 `yaml:"decay_min_lr" range:"[0,inf)" doc:"learning rate at the end of the final decay"`
	LRMin               float64 `yaml:"lr_min" range:"[0,inf)" doc:"learning rate at which exponential starts, 0 = 1e-9"`
	B                   float64 `yaml:"b" range:"(-inf,0]" doc:"exponent of power"`
	PeriodLengths       []Count `yaml:"period_lengths" doc:"lengths of the periods of wsds"`
	Legacy              bool    `yaml:"legacy" doc:"use the legacy trainer's formula where the two differ (inverse_sqrt)"`
	GradClipWarmupSteps Count   `yaml:"grad_clip_warmup_steps" range:"[0,inf)" doc:"steps with a wider gradient clip"`
	GradClipWarmup      float64 `yaml:"grad_clip_warmup_factor" range:"[0,inf)" doc:"factor of the wider clip"`
}

// Loss is cross-entropy plus ZLoss times the mean squared log-sum-exp.
type Loss struct {
	ZLoss   float64 `yaml:"z_loss" range:"[0,inf)" doc:"multiplier of the squared log-partition, 0 = off"`
	Divisor string  `yaml:"divisor" oneof:"labels tokens" doc:"labels: number of kept labels (OLMo-core); tokens: batch times sequence length (legacy trainer)"`
}

// Runtime says where and when refreshes run.
type Runtime struct {
	Device     string        `yaml:"device" doc:"where a second-order method computes: cpu, cuda:0 (cuda:N), auto = cuda:0 where there is one; the model's forward and backward stay on the CPU"`
	MinOrder   int           `yaml:"device_min_order" range:"[0,65536]" doc:"smallest factor whose refresh runs on the device; smaller ones are the CPU's, 0 = 128"`
	Mode       string        `yaml:"mode" oneof:"native asteria" doc:"native: refreshes inside the step; asteria: beside training"`
	Staleness  int           `yaml:"staleness" range:"[0,1000000]" doc:"budget in steps (asteria)"`
	Lag        int           `yaml:"lag" range:"[-1,1000000]" doc:"steps from snapshot to adoption, -1 = min(staleness, precondition_frequency) (asteria)"`
	LagStart   int           `yaml:"lag_start" range:"[-1,inf)" doc:"refreshes due before this step are adopted at once, later ones runtime.lag late; -1 = 5 precondition_frequency, and then late by no more than 1 in 50 of the steps so far, 1 in 100 with a KL method (asteria)"`
	Adopt      string        `yaml:"adopt" oneof:"scheduled ready" doc:"when a result is taken into use (asteria)"`
	ReadyShare float64       `yaml:"ready_share" range:"(0,1]" doc:"with runtime.adopt ready, the part of the blocks, by what adoption costs the step, whose refreshes are in flight at once; the others wait for their turn, 1 = only until the workers are free (asteria)"`
	Workers    int           `yaml:"workers" range:"[0,4096]" doc:"refresh workers, 0 = chosen (asteria)"`
	JobTimeout time.Duration `yaml:"job_timeout" range:"[0,inf)" doc:"time after which a refresh beside training, or inside a step a call of its solver, counts as failed; 0 = never"`
	Replay     string        `yaml:"replay" doc:"adoption log to replay (asteria)"`
}

// Tiers places the state of a second-order method. Device and Host together bound
// what of it is in RAM; what does not fit goes to NVMe, or refuses the run. Without
// any of the keys all of it stays in RAM. Placement never changes a result.
type Tiers struct {
	Device Size `yaml:"device" range:"[0,inf)" doc:"bytes for the factors, such as 4GiB; on a machine without a GPU a part of RAM like tiers.host, 0 = none"`
	Host   Size `yaml:"host" range:"[0,inf)" doc:"bytes of RAM for the rest of the optimizer's state, 0 = none beside tiers.device, no limit without it"`
	NVMe   NVMe `yaml:"nvme" doc:"tier on disk"`
	Pinned bool `yaml:"pinned" doc:"lock the RAM of the tiers, so that the system never swaps it; where the system refuses, ordinary RAM is used, with a warning"`
	// Pressure needs a lower tier to demote to.
	Pressure bool `yaml:"pressure" doc:"with tiers.nvme.path, give up a part of the budgets, up to half, while the system is short of memory (PSI, or the limit of the control group); results do not depend on it"`
}

// NVMe is the tier on disk.
type NVMe struct {
	Path string `yaml:"path" doc:"existing folder for what does not fit in RAM, empty = no such tier"`
	Size Size   `yaml:"size" range:"[0,inf)" doc:"limit of the tier, 0 = the drive's"`
}

// Parallel describes data-parallel ranks.
type Parallel struct {
	Ranks     int           `yaml:"ranks" range:"[1,4096]" doc:"replicas inside this process; under mpirun its number of ranks counts"`
	Sync      string        `yaml:"sync" oneof:"selective every" doc:"when replicas get new roots and bases: before they are too old, or every one that is published"`
	Roots     string        `yaml:"roots" oneof:"owner average" doc:"inverse roots that replicas agree on: those of the block's owner, or the average of all ranks"`
	Shard     bool          `yaml:"shard" doc:"keep each part of the optimizer's state on one rank only"`
	Flat      bool          `yaml:"flat" doc:"exchange without regard to nodes, for comparison; the results are the same"`
	Node      string        `yaml:"node" doc:"ranks with equal names form a node, for each rank its own value; empty = ranks that share memory"`
	Deadline  time.Duration `yaml:"deadline" range:"(0,inf)" doc:"longest wait for another rank before the run ends with an error that names it"`
	HashEvery Count         `yaml:"hash_every" range:"[0,inf)" doc:"steps between two comparisons of all parameters over the ranks, 0 = none"`
}

// Checkpoint says when state is saved, how much is kept and what a run starts from.
type Checkpoint struct {
	Interval      Count  `yaml:"interval" range:"[0,inf)" doc:"steps between two checkpoints, 0 = only at the end"`
	Ephemeral     Count  `yaml:"ephemeral_interval" range:"[0,inf)" doc:"steps between two checkpoints that the next one replaces, 0 = none"`
	Keep          int    `yaml:"keep" range:"[0,inf)" doc:"newest checkpoints kept, ephemeral ones not counted, 0 = all"`
	Sync          bool   `yaml:"sync" doc:"wait for each save instead of writing beside training"`
	NoFinal       bool   `yaml:"no_final" doc:"do not save after the last step"`
	Resume        string `yaml:"resume" oneof:"auto never always" doc:"continue from the newest checkpoint in save_folder: if there is one, never, or fail without one"`
	LoadPath      string `yaml:"load_path" doc:"checkpoint or model folder to start from when save_folder has none"`
	LoadOptimizer bool   `yaml:"load_optimizer" doc:"take the optimizer's state from load_path"`
	LoadTrainer   bool   `yaml:"load_trainer" doc:"take step and data position from load_path"`
}

// Eval says how the held-out loss is measured.
type Eval struct {
	Interval Count    `yaml:"interval" range:"[0,inf)" doc:"steps between two evaluations, 0 = only at the end"`
	Tokens   Count    `yaml:"tokens" range:"[0,inf)" doc:"held-out tokens read at each evaluation, 0 = all"`
	Paths    []string `yaml:"paths" doc:"held-out token files; empty = the held-out part of the corpus"`
	Metric   string   `yaml:"metric" oneof:"core legacy" doc:"core: mean over tokens; legacy: mean over instances of their means"`
	AtStart  bool     `yaml:"at_start" doc:"also evaluate before the first step"`
	Disabled bool     `yaml:"disabled" doc:"never evaluate"`
}
