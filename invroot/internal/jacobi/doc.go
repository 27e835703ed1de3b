// Package jacobi is the reference eigensolver of the tests: the cyclic Jacobi
// method in float64, which shares nothing with the code under test.
package jacobi
