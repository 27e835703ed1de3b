package model

import (
	"math"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/gemm/vec"
)

// LossOptions choose what is added up and what it is divided by.
type LossOptions struct {
	// Legacy takes the legacy trainer's divisor, Rows*Seq, when Divisor is 0.
	Legacy bool
	// ZLoss multiplies the sum of squared log-sum-exps; 0 is off.
	ZLoss float64
	// Divisor is the divisor of the whole global batch, so that micro-batches add
	// up to it; 0 takes [Batch.Divisor] of this batch.
	Divisor float64
	// Fresh sets the gradients instead of adding to them: for the first micro-batch
	// of a step, which then need not be cleared.
	Fresh bool
	// Share places the batch in the global batch, which decides the order of the
	// gradients' sum. The first call of a step is the one of its first row.
	Share Share
}

// LossStats is what a batch adds to the loss.
type LossStats struct {
	CE      float64 // sum over targets of -log p(target)
	Z       float64 // sum over targets of (log-sum-exp of the logits)²
	Labels  int     // targets that count
	Divisor float64 // divisor that was used
	Loss    float64 // (CE + ZLoss*Z) / Divisor, 0 when Divisor is 0

	// RowCE, RowZ and RowLabels are CE, Z and Labels by sequence. They belong to the
	// model and hold until its next call.
	RowCE, RowZ []float64
	RowLabels   []int
}

// lossTask turns rows of logits into losses and, for training, into gradients.
type lossTask[T gemm.Float] struct {
	batch   *Batch
	first   int // token of the first row
	logits  gemm.Matrix[T]
	ce, z   []float64
	grad    bool
	zLoss   float64
	inverse float64 // 1/divisor
}

func (t *lossTask[T]) Do(chunk, _ int) {
	lo, hi := span(chunk, t.logits.Rows)
	for r := lo; r < hi; r++ {
		i := t.first + r
		label := t.batch.label(i/t.batch.Seq, i%t.batch.Seq)
		t.ce[i], t.z[i] = t.row(t.logits.Row(r), label)
	}
}

// row returns cross-entropy and squared log-sum-exp of one token, 0 without a
// target. With grad it sets x to
//
//	(p*(1 + 2*zLoss*lse) - onehot(label)) / divisor
func (t *lossTask[T]) row(x []T, label int) (ce, z float64) {
	switch {
	case label == ignored:
		if t.grad {
			clear(x)
		}
		return 0, 0
	case t.grad:
		ce, lse := vec.CrossEntropy(x, x, label, t.inverse, t.zLoss)
		return ce, lse * lse
	}
	target, peak := float64(x[label]), vec.Max(x)
	lse := float64(peak) + math.Log(float64(vec.ExpSum(x, x, peak)))
	return lse - target, lse * lse
}

// stats adds the tokens' losses in order, in float64, sequence by sequence, so
// that the sum does not depend on who computed them.
func (w *work[T]) stats(b *Batch, o LossOptions) LossStats {
	s := LossStats{Divisor: o.Divisor, RowCE: w.rowCE[:b.Rows], RowZ: w.rowZ[:b.Rows], RowLabels: w.rowCount[:b.Rows]}
	for row := range b.Rows {
		ce, z, n := 0.0, 0.0, 0
		for t := range b.Seq {
			i := row*b.Seq + t
			ce += w.ce[i]
			z += w.z[i]
			if b.label(row, t) != ignored {
				n++
			}
		}
		s.RowCE[row], s.RowZ[row], s.RowLabels[row] = ce, z, n
		s.CE += ce
		s.Z += z
		s.Labels += n
	}
	if s.Divisor != 0 {
		s.Loss = (s.CE + o.ZLoss*s.Z) / s.Divisor
	}
	return s
}

// head computes the loss from w.normed, a chunk of logits at a time. With grad it
// also sets w.dx to the gradient of w.normed and adds that of the head.
func (p *pass[T]) head(b *Batch, o LossOptions, grad bool) LossStats {
	if o.Divisor == 0 {
		o.Divisor = b.Divisor(o.Legacy)
	}
	p.loss = lossTask[T]{batch: b, ce: p.w.ce, z: p.w.z, grad: grad, zLoss: o.ZLoss}
	if o.Divisor != 0 {
		p.loss.inverse = 1 / o.Divisor
	}
	eachChunk(b.Rows, b.Seq, p.m.cfg.VocabSize, p.chunk)
	return p.w.stats(b, o)
}

// eachChunk tells f the first token and the number of tokens of each chunk of logits.
// A chunk ends with a sequence, so that chunks do not depend on the rows.
func eachChunk(rows, seq, vocab int, f func(first, n int)) {
	tokens := rows * seq
	step := logitRows(tokens, vocab)
	if step > seq {
		step -= step % seq
	}
	for first := 0; first < tokens; {
		n := min(step, tokens-first)
		if step < seq {
			n = min(n, seq-first%seq)
		}
		f(first, n)
		first += n
	}
}

// headChunk does rows tokens from first on: logits, losses and, for training, the
// gradients of both factors. The logits become their gradient in place, so that
// the matrix exists once.
func (p *pass[T]) headChunk(first, rows int) {
	d, out := p.m.cfg.DModel, p.m.out
	x := gemm.MatrixOf(rows, d, p.w.normed[first*d:])
	logits := gemm.MatrixOf(rows, out.value.Rows, p.w.logits)
	gemm.Mul(p.m.eng, false, true, 1, x, out.value, 0, logits)
	p.loss.first, p.loss.logits = first, logits
	p.m.eng.Run((rows+rowChunk-1)/rowChunk, &p.loss)
	if p.loss.grad {
		gemm.Mul(p.m.eng, false, false, 1, logits, out.value, 0, gemm.MatrixOf(rows, d, p.w.dx[first*d:]))
		p.headGrad(first, rows, logits.Data, x.Data)
	}
}
