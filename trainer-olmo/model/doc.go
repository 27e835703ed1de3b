// Package model is the OLMo family of decoder-only transformers, forward and
// backward, written out by hand.
//
// # What is computed
//
// x = E[ids]; L blocks; a final norm; logits = x * Wᵀ with W the head or, tied,
// the embeddings. A block is attention followed by a SwiGLU MLP, each with a
// residual. [OLMo1] normalises what goes into them, [OLMo2] what comes out:
//
//	olmo1:  h = x + Attn(LN(x))         y = h + MLP(LN(h))
//	olmo2:  h = x + RMS(Attn(x))        y = h + RMS(MLP(h))
//
// OLMo-2 also normalises queries and keys over their full projected width
// before they are split into heads, and [OLMo3] adds a sliding window on most
// layers. Rotary embeddings pair element j of a head with element j+hd/2.
//
// # Storage
//
// Linear weights are [out, in] and y = x*Wᵀ. All parameters lie in one buffer
// and all gradients in another, in the order of [Config.Shapes]; q, k and v of a
// layer are neighbours there, and so are gate and up, so that one matrix product
// serves each group. Activations are row-major [tokens, width]; queries, keys and
// values are kept [batch, head, time, head_dim].
//
// # Memory
//
// Attention works on blocks of queries against blocks of keys, keeps one
// log-sum-exp per query and head, and computes the probabilities again in the
// backward pass: nothing grows with the square of the sequence length. Blocks
// that the causal mask, the window or a document boundary hides are skipped.
// Logits exist for a chunk of rows at a time.
//
// # Determinism
//
// Every sum is over chunks that depend on shapes only, added in a fixed order.
// The number of threads never changes a bit of a result.
//
// # Concurrency
//
// A [Model] and a [Decoder] serve one goroutine at a time; they spread their
// work over the engine that they were given.
package model
