package train

import (
	"fmt"
	"math"

	"github.com/asteria-runtime/asteria/trainer-olmo/data"
)

// checkFirstBatch refuses a batch on which nothing can be learned, and returns
// what looks wrong with it.
func checkFirstBatch(b *data.Batch, vocab int) (warnings []string, err error) {
	m := modelBatch(b, 0, b.Rows)
	labels := m.Labels()
	if labels == 0 {
		return nil, fmt.Errorf("train: the first batch has no label: %d of %d instances are masked; check label_mask_paths and instance_filter", m.MaskedInstances(), b.Rows)
	}
	counts := make(map[int32]int)
	for i, id := range b.Tokens {
		if id < 0 || int(id) >= vocab {
			return nil, fmt.Errorf("train: token %d of the first batch is %d, the vocabulary has %d: check data.dtype and the tokenizer", i, id, vocab)
		}
		counts[id]++
	}
	most, at := 0, int32(0)
	for id, n := range counts {
		if n > most || n == most && id < at {
			most, at = n, id
		}
	}
	if 2*most > len(b.Tokens) && len(b.Tokens) > 1 {
		warnings = append(warnings, fmt.Sprintf("%d%% of the first batch is token %d: check data.dtype and padding", 100*most/len(b.Tokens), at))
	}
	if 2*labels < b.Rows*(b.Seq-1) {
		warnings = append(warnings, fmt.Sprintf("only %d of %d targets of the first batch count", labels, b.Rows*(b.Seq-1)))
	}
	return warnings, nil
}

// checkFirstLoss compares the first loss of a new run with that of guessing.
func checkFirstLoss(ce float64, vocab int) string {
	guess := math.Log(float64(vocab))
	switch {
	case ce < guess/4:
		return fmt.Sprintf("the first loss is %.3f, far below that of guessing, ln %d = %.3f: check the data for repetition", ce, vocab, guess)
	case ce > 2*guess+1:
		return fmt.Sprintf("the first loss is %.3f, far above that of guessing, ln %d = %.3f: check the initialisation", ce, vocab, guess)
	}
	return ""
}
