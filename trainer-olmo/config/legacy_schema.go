package config

// The keys of the legacy trainer's YAML (olmo/config.py of allenai/OLMo), with
// its defaults in [legacyDefault]. A field of type `any` is a known key without
// effect here, whatever it holds; `null:"zero"` marks the ones with a default that
// null takes away.

type legacyConfig struct {
	RunName    string           `yaml:"run_name"`
	Seed       int64            `yaml:"seed" range:"[0,inf)"`
	SaveFolder string           `yaml:"save_folder"`
	Model      legacyModel      `yaml:"model"`
	Optimizer  legacyOptimizer  `yaml:"optimizer"`
	Scheduler  legacyScheduler  `yaml:"scheduler"`
	Data       legacyData       `yaml:"data"`
	Tokenizer  legacyTokenizer  `yaml:"tokenizer"`
	Evaluators []legacyEvaluate `yaml:"evaluators"`

	MaxDuration         string   `yaml:"max_duration"`
	GlobalBatch         int64    `yaml:"global_train_batch_size" range:"[1,inf)"`
	MicroBatch          int64    `yaml:"device_train_microbatch_size" range:"[1,inf)"`
	EvalBatch           int64    `yaml:"device_eval_batch_size" range:"[1,inf)"`
	EvalInterval        Count    `yaml:"eval_interval" range:"[0,inf)"`
	EvalSubset          int64    `yaml:"eval_subset_num_batches" range:"[-1,inf)"`
	EvalOnLoad          bool     `yaml:"eval_on_load"`
	SaveInterval        *Count   `yaml:"save_interval" null:"zero" range:"[0,inf)"`
	SaveEphemeral       *Count   `yaml:"save_interval_ephemeral" range:"[1,inf)"`
	SaveIntervalWhole   *Count   `yaml:"save_interval_unsharded" range:"[0,inf)"`
	KeepSharded         int      `yaml:"save_num_checkpoints_to_keep" range:"[-1,inf)"`
	KeepWhole           int      `yaml:"save_num_unsharded_checkpoints_to_keep" range:"[-1,inf)"`
	SaveOverwrite       bool     `yaml:"save_overwrite"`
	NoPreTrain          any      `yaml:"no_pre_train_checkpoint"`
	LoadPath            string   `yaml:"load_path"`
	TryLoadLatest       any      `yaml:"try_load_latest_save"`
	ResetOptimizer      bool     `yaml:"reset_optimizer_state"`
	ResetTrainer        bool     `yaml:"reset_trainer_state"`
	RestoreLoader       bool     `yaml:"restore_dataloader"`
	StopAt              Count    `yaml:"stop_at" range:"[0,inf)"`
	StopAfter           Count    `yaml:"stop_after" range:"[0,inf)"`
	MaxGradNorm         *float64 `yaml:"max_grad_norm" range:"[0,inf)"`
	MaxGradNormRatio    *float64 `yaml:"max_grad_norm_ratio" range:"[0,inf)"`
	Precision           string   `yaml:"precision" oneof:"amp_bf16 amp_fp16 fp32"`
	AuxiliaryLoss       bool     `yaml:"softmax_auxiliary_loss"`
	AuxiliaryMultiplier *float64 `yaml:"auxiliary_loss_multiplier" range:"[0,inf)"`
	DryRun              bool     `yaml:"dry_run"`

	Epoch               any `yaml:"epoch"`
	FastForward         any `yaml:"fast_forward_batches"`
	RemoteSaveFolder    any `yaml:"remote_save_folder"`
	CanceledCheck       any `yaml:"canceled_check_interval"`
	ForceSaveWhole      any `yaml:"force_save_unsharded"`
	LoadPathSharded     any `yaml:"load_path_sharded_checkpointer"`
	ShardedCheckpointer any `yaml:"sharded_checkpointer"`
	Wandb               any `yaml:"wandb"`
	SpeedMonitor        any `yaml:"speed_monitor"`
	ConsoleLog          any `yaml:"console_log_interval"`
	Gen1GC              any `yaml:"gen1_gc_interval"`
	Compile             any `yaml:"compile"`
	Strategy            any `yaml:"distributed_strategy"`
	FSDP                any `yaml:"fsdp"`
	DDP                 any `yaml:"ddp"`
	Single              any `yaml:"single"`
	TimeLimit           any `yaml:"time_limit"`
	ExtraSteps          any `yaml:"extra_steps_after_cancel"`
	EarlyStopping       any `yaml:"early_stopping_factor"`
	SaveDataIndices     any `yaml:"save_data_indices"`
	PythonProfiling     any `yaml:"python_profiling"`
	TorchProfiling      any `yaml:"torch_profiling"`
	ActivationCkpt      any `yaml:"activation_checkpointing"`
	FusedLoss           any `yaml:"fused_loss"`
	ModuleOutputs       any `yaml:"module_outputs_save_steps"`
	HFDatasetsCache     any `yaml:"hf_datasets_cache_dir"`
	NewStyle            any `yaml:"new_style_checkpoints"`
	DeviceBatch         any `yaml:"device_train_batch_size"`
	DeviceAccum         any `yaml:"device_train_grad_accum"`
}

type legacyModel struct {
	DModel            int      `yaml:"d_model" range:"[1,1048576]"`
	NHeads            int      `yaml:"n_heads" range:"[1,1048576]"`
	NKVHeads          int      `yaml:"n_kv_heads" range:"[0,1048576]"`
	NLayers           int      `yaml:"n_layers" range:"[1,1048576]"`
	ClipQKV           float64  `yaml:"clip_qkv" range:"[0,inf)"`
	MLPRatio          float64  `yaml:"mlp_ratio" range:"(0,inf)"`
	MLPHidden         int      `yaml:"mlp_hidden_size" range:"[0,1048576]"`
	Activation        string   `yaml:"activation_type" oneof:"gelu relu swiglu"`
	BlockType         string   `yaml:"block_type" oneof:"sequential llama parallel"`
	Alibi             bool     `yaml:"alibi"`
	Rope              bool     `yaml:"rope"`
	RopeTheta         float64  `yaml:"rope_theta" range:"(0,inf)"`
	AttentionDropout  float64  `yaml:"attention_dropout" range:"[0,1]"`
	ResidualDropout   float64  `yaml:"residual_dropout" range:"[0,1]"`
	EmbeddingDropout  float64  `yaml:"embedding_dropout" range:"[0,1]"`
	EmbeddingNorm     bool     `yaml:"embedding_layer_norm"`
	MultiQuery        *bool    `yaml:"multi_query_attention"`
	AttentionNorm     bool     `yaml:"attention_layer_norm"`
	AttentionAffine   bool     `yaml:"attention_layer_norm_with_affine"`
	NormType          string   `yaml:"layer_norm_type" oneof:"default low_precision rms amd_compatible"`
	NormAffine        bool     `yaml:"layer_norm_with_affine"`
	NormEps           float64  `yaml:"layer_norm_eps" range:"(0,1)"`
	NormAfter         bool     `yaml:"norm_after"`
	MaxSequenceLength int      `yaml:"max_sequence_length" range:"[2,16777216]"`
	IncludeBias       bool     `yaml:"include_bias"`
	BiasForNorm       *bool    `yaml:"bias_for_layer_norm"`
	ScaleLogits       bool     `yaml:"scale_logits"`
	VocabSize         int      `yaml:"vocab_size" range:"[1,1048576]"`
	EmbeddingSize     int      `yaml:"embedding_size" null:"zero" range:"[0,1048576]"`
	WeightTying       bool     `yaml:"weight_tying"`
	EOS               int      `yaml:"eos_token_id" range:"[0,inf)"`
	Pad               int      `yaml:"pad_token_id" range:"[0,inf)"`
	InitFn            string   `yaml:"init_fn" oneof:"normal mitchell full_megatron kaiming_normal fan_in"`
	InitStd           float64  `yaml:"init_std" range:"(0,inf)"`
	InitCutoff        *float64 `yaml:"init_cutoff_factor" range:"(0,inf)"`
	ScaleEmbInit      bool     `yaml:"scale_emb_init"`
	EmbInitStd        *float64 `yaml:"emb_init_std" range:"(0,inf)"`

	RopeFullPrecision any `yaml:"rope_full_precision"`
	FlashAttention    any `yaml:"flash_attention"`
	InitDevice        any `yaml:"init_device"`
	BlockGroupSize    any `yaml:"block_group_size"`
	Precision         any `yaml:"precision"`
	AlibiBias         any `yaml:"alibi_bias_max"`
}

type legacyOptimizer struct {
	Name         string    `yaml:"name" oneof:"adamw lionw decoupled_lionw shampoo soap kl-shampoo kl-soap eigen-shampoo"`
	LR           float64   `yaml:"learning_rate" range:"(0,inf)"`
	WeightDecay  float64   `yaml:"weight_decay" range:"[0,inf)"`
	Betas        []float64 `yaml:"betas" range:"[0,1)"`
	Eps          float64   `yaml:"eps" range:"[0,1)"`
	DecayNorm    bool      `yaml:"decay_norm_and_bias"`
	DecayEmb     bool      `yaml:"decay_embeddings"`
	NoDecayNorm  *bool     `yaml:"no_decay_norm_and_bias"`
	Selective    bool      `yaml:"selective_updates"`
	LogInterval  any       `yaml:"metrics_log_interval"`
	RecordUpdate any       `yaml:"record_update_metrics"`
}

type legacyScheduler struct {
	Name           string   `yaml:"name" oneof:"cosine_with_warmup linear_with_warmup inverse_sqrt_with_warmup max_scheduler constant cosine_linear_envelope constant_with_warmup"`
	Units          string   `yaml:"units" oneof:"steps tokens"`
	Warmup         Count    `yaml:"t_warmup" range:"[0,inf)"`
	TMax           Count    `yaml:"t_max" range:"[0,inf)"`
	AlphaF         float64  `yaml:"alpha_f" range:"[0,1]"`
	WarmupMinLR    *float64 `yaml:"warmup_min_lr" range:"[0,inf)"`
	GradClipSteps  Count    `yaml:"grad_clip_warmup_steps" range:"[0,inf)"`
	GradClipFactor float64  `yaml:"grad_clip_warmup_factor" range:"[0,inf)"`
}

type legacyData struct {
	Paths          []string     `yaml:"paths"`
	Datasets       any          `yaml:"datasets"`
	MemmapDType    string       `yaml:"memmap_dtype" oneof:"uint8 uint16 uint32 uint64"`
	EffectiveDType string       `yaml:"effective_memmap_dtype" oneof:"uint8 uint16 uint32 uint64"`
	LabelMasks     []string     `yaml:"label_mask_paths"`
	PadDirection   string       `yaml:"pad_direction" oneof:"right left"`
	DocLengths     bool         `yaml:"generate_doc_lengths"`
	DropLast       bool         `yaml:"drop_last"`
	Seed           *int64       `yaml:"seed" range:"[0,inf)"`
	Filter         legacyFilter `yaml:"instance_filter"`
	Custom         any          `yaml:"custom_dataset"`
	AttentionMask  any          `yaml:"generate_attention_mask"`
	NumWorkers     any          `yaml:"num_workers"`
	PinMemory      any          `yaml:"pin_memory"`
	Prefetch       any          `yaml:"prefetch_factor"`
	Persistent     any          `yaml:"persistent_workers"`
	Timeout        any          `yaml:"timeout"`
}

type legacyFilter struct {
	MaxPeriod int `yaml:"repetition_max_period" range:"[1,1024]"`
	MinPeriod int `yaml:"repetition_min_period" range:"[1,1024]"`
	MaxCount  int `yaml:"repetition_max_count" range:"[1,inf)"`
}

type legacyTokenizer struct {
	Identifier string `yaml:"identifier"`
	Truncate   any    `yaml:"truncate_direction"`
}

// legacyEvaluate is one element of evaluators.
type legacyEvaluate struct {
	Label  string     `yaml:"label"`
	Type   string     `yaml:"type" oneof:"lm downstream"`
	Data   legacyData `yaml:"data"`
	Batch  any        `yaml:"device_eval_batch_size"`
	Subset any        `yaml:"subset_num_batches"`
}

// legacyDefault holds the defaults of the legacy trainer; several are not those
// of any official run (dropout 0.1, biases, tied embeddings, warm-up from 10% of
// the learning rate, eps 1e-5).
func legacyDefault() legacyConfig {
	thousand := Count(1000)
	return legacyConfig{
		Seed: 6198, SaveFolder: "", MaxDuration: "10000", GlobalBatch: 512, MicroBatch: 16, EvalBatch: 16,
		EvalInterval: 1000, EvalSubset: -1, SaveInterval: &thousand, KeepSharded: -1, KeepWhole: -1, RestoreLoader: true,
		Model: legacyModel{
			DModel: 768, NHeads: 12, NLayers: 12, MLPRatio: 4, Activation: "swiglu", BlockType: "sequential",
			RopeTheta: 10000, AttentionDropout: 0.1, ResidualDropout: 0.1, EmbeddingDropout: 0.1,
			NormType: "default", NormAffine: true, NormEps: 1e-5, AttentionAffine: true, MaxSequenceLength: 1024,
			IncludeBias: true, VocabSize: 50257, EmbeddingSize: 50304, WeightTying: true, EOS: 50256, Pad: 50256,
			InitFn: "normal", InitStd: 0.02,
		},
		Optimizer: legacyOptimizer{
			Name: "lionw", LR: 1e-4, WeightDecay: 0.01, Betas: []float64{0.9, 0.95}, Eps: 1e-5,
		},
		Scheduler: legacyScheduler{Name: "cosine_with_warmup", Units: "steps", Warmup: 100, AlphaF: 0.1},
		Data:      legacyData{MemmapDType: "uint16", PadDirection: "right"},
	}
}
