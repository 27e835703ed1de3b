package invroot

// Report is the evidence that comes with a result.
type Report struct {
	// Method that produced the result.
	Method Method
	// Precision of the arithmetic that produced it: Single or Double. For a
	// float64 solver both words mean float64, and Double is reported.
	Precision Precision
	// Iterations of the iterative methods and of Diagonalize, 1 for a QR refresh,
	// 0 for an eigendecomposition.
	Iterations int
	// Residual is the method's own measure, relative, 0 at best. Eigen: the larger of
	// ‖(A-QΛQᵀ)v‖/(‖A‖‖v‖) and |‖Qᵀv‖²/‖v‖²-1| for one fixed vector v. Iterative
	// methods: max|M-I|. Diagonalize: off-diagonal share of ‖QᵀAQ‖_F.
	Residual float64
	// LambdaMin and LambdaMax bound the spectrum of A without ridge (after trace
	// scaling, if any). A QR refresh reports the extreme diag(QᵀAQ).
	LambdaMin, LambdaMax float64
	// Ridge is the floor under the eigenvalues, or the multiple of the identity
	// that was added, shift included.
	Ridge float64
	// Condition is the condition number of the matrix that was inverted, ridge
	// included; 0 where nothing was.
	Condition float64
	// Retries counts the attempts before the one that succeeded.
	Retries int
}

// Stats counts what happened to a solver since it was made.
type Stats struct {
	Calls     int64 // refreshes asked for
	ToDouble  int64 // calls that Auto sent to float64 because of conditioning
	Retried   int64 // float64 attempts after a failure in Single
	MoreRidge int64 // attempts with a larger ridge
	Refused   int64 // non-finite inputs refused before any solver ran
	Failed    int64 // calls that returned another error
}
