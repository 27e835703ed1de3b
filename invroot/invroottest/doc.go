// Package invroottest checks that a refresh solver keeps the contract of a refresh
// job, whatever hardware or algorithm it stands on: run [Run] over every
// implementation. Results are compared with a Jacobi eigensolver in float64 that
// shares nothing with the code under test.
package invroottest
