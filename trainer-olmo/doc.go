// Package trainerolmo is the module's overview; it holds no code. The parts, each
// usable without the command:
//
//	param        named tensors: what models own, optimizers update, checkpoints store
//	model        OLMo-1, -2 and -3, forward and backward, decoder, presets
//	data         token files, order, loader, tokenize, inspect
//	tokenizer    byte-level BPE of tokenizer.json, and plain bytes
//	optim        AdamW, LionW, clipping, schedules, the skip-step rule
//	asteria      the second-order runtime: kron's blocks, invroot's refreshes
//	checkpoint   crash-safe checkpoints, digests; Hugging Face folders below it
//	train        the training loop, resume, evaluation
//	config       the configuration, its checks, OLMo's legacy files
//	plan         parameters, steps, learning rates and bytes before a run
//	report       tables, plots and one HTML page from run folders
//	energy       joules of processors, memory and GPUs
//	doctor       what the machine has
//
// The command is cmd/trainer-olmo.
package trainerolmo
