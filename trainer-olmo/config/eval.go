package config

// evalTokens is about how many tokens are evaluated at once: it bounds the
// activations and does not change the result.
const evalTokens = 4096

// EvalBatch is the number of instances that are evaluated at once.
func (c *Config) EvalBatch() int { return max(1, evalTokens/c.Data.SequenceLength) }

// EvalRows is the number of instances in the largest pass of an evaluation, as
// far as the configuration tells; 0 when nothing is evaluated.
func (c *Config) EvalRows() int {
	nothing := c.Data.HeldOut == 0 && c.Data.HeldOutTokens == 0 && len(c.Eval.Paths) == 0
	if c.Eval.Disabled || nothing {
		return 0
	}
	rows, seq := c.EvalBatch(), c.Data.SequenceLength
	if n := int(c.Eval.Tokens); n > 0 {
		rows = min(rows, (n+seq-1)/seq)
	}
	return rows
}
