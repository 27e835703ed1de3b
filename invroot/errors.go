package invroot

import (
	"errors"
	"fmt"
)

var (
	// ErrNonFinite reports a NaN or an infinity in an input. It is found before
	// any solver runs, since iterations on NaN need not end.
	ErrNonFinite = errors.New("invroot: input has a non-finite element")
	// ErrNotConverged is matched by every *ConvergenceError.
	ErrNotConverged = errors.New("invroot: not converged")
	// ErrNotPositive is matched by every *NotPositiveError.
	ErrNotPositive = errors.New("invroot: matrix is not positive definite and the ridge does not lift it")
	// ErrRange reports a result too large for the element type, as the inverse
	// of a matrix of denormal numbers is.
	ErrRange = errors.New("invroot: result exceeds the range of the element type")
)

// ConvergenceError tells which iteration stopped short, and where.
type ConvergenceError struct {
	Stage      string  // "tridiagonal ql", "coupled newton", "higher order", "residual"
	Order      int     // n of the n×n problem
	Iterations int     // iterations done
	Residual   float64 // last value of the stage's own measure
}

// Error implements error.
func (e *ConvergenceError) Error() string {
	return fmt.Sprintf("invroot: %s not converged: order %d, iterations %d, residual %.3g",
		e.Stage, e.Order, e.Iterations, e.Residual)
}

// Is makes errors.Is(err, ErrNotConverged) true.
func (e *ConvergenceError) Is(target error) bool { return target == ErrNotConverged }

// NotPositiveError tells which eigenvalue has no inverse root.
type NotPositiveError struct {
	Order     int     // n of the n×n problem
	LambdaMin float64 // smallest eigenvalue, ridge included
}

// Error implements error.
func (e *NotPositiveError) Error() string {
	return fmt.Sprintf("%v: order %d, smallest eigenvalue with ridge %.3g", ErrNotPositive, e.Order, e.LambdaMin)
}

// Is makes errors.Is(err, ErrNotPositive) true.
func (e *NotPositiveError) Is(target error) bool { return target == ErrNotPositive }
