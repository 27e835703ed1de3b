package data

// Batch is one rank's part of a global batch. Its slices are reused by the next
// call of [Loader.Batch] on the same value.
type Batch struct {
	// Tokens holds Rows×Seq ids, row-major; row i is instance Instances[i].
	Tokens    []int32
	Rows, Seq int
	// LabelMask has the size of Tokens and is nil when every token may be
	// predicted; false removes the token as a target.
	LabelMask []bool
	// InstanceMask has Rows elements and is nil without a filter; false removes
	// all targets of a row.
	InstanceMask []bool
	// DocLens holds, for each row, the lengths of its documents, which add up to
	// Seq; nil unless Config.DocLengths is set.
	DocLens [][]int32
	// Instances are the numbers of the rows' instances in the data set.
	Instances []uint32
	// Epoch counts from 1 in core order and from 0 in legacy order.
	Epoch int64
}
