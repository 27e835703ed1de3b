package data

// IgnoreLabel is the label of a position that has no target.
const IgnoreLabel = -100

// DocumentLengths appends to dst the lengths of the documents in tokens; they
// add up to len(tokens). A document ends with eos, which belongs to it; with
// bos ≥ 0 only where bos follows. What follows the last end is a document too.
// Pass bos = −1 where documents have no first token.
func DocumentLengths(dst []int32, tokens []int32, eos, bos int32) []int32 {
	start := 0
	for i, id := range tokens {
		// An EOS in the last place ends the instance anyway.
		if id == eos && i+1 < len(tokens) && (bos < 0 || tokens[i+1] == bos) {
			dst = append(dst, int32(i+1-start))
			start = i + 1
		}
	}
	if start < len(tokens) {
		dst = append(dst, int32(len(tokens)-start))
	}
	return dst
}

// CumulativeLengths appends 0 and the running sums of all positive lengths of
// all rows, as attention kernels for documents of several lengths take them.
func CumulativeLengths(dst []int32, rows [][]int32) []int32 {
	sum := int32(0)
	dst = append(dst, sum)
	for _, row := range rows {
		for _, n := range row {
			if n == 0 {
				continue
			}
			sum += n
			dst = append(dst, sum)
		}
	}
	return dst
}

// Labels writes to dst, of len(tokens), the target of each position of rows of
// seq tokens: the next token, or IgnoreLabel at a row's end and where a mask is
// false at that next token. keep has one element a token, instances one a row;
// nil masks nothing.
func Labels(dst, tokens []int32, seq int, keep, instances []bool) {
	if seq < 1 || len(dst) != len(tokens) || len(tokens)%seq != 0 {
		panic("data: labels of another shape")
	}
	for i := range tokens {
		next := i + 1
		switch {
		case next%seq == 0, keep != nil && !keep[next], instances != nil && !instances[i/seq]:
			dst[i] = IgnoreLabel
		default:
			dst[i] = tokens[next]
		}
	}
}
