package train

import "errors"

// ErrNonFinite is in the error of a run that ended because losses or gradients
// were NaN or infinite for too many steps in a row.
var ErrNonFinite = errors.New("loss or gradients not finite")

// ErrDifferentData says that a checkpoint was trained on other data, or in
// another order, than the run that wants to continue it.
var ErrDifferentData = errors.New("train: the data differs from that of the checkpoint")

// ErrInUse says that another process trains in the run folder.
var ErrInUse = errors.New("train: the run folder is in use")

// ErrOtherRank says that this rank ends because another one failed, whose own
// message tells why.
var ErrOtherRank = errors.New("another rank failed")
