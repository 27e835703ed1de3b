// Package hiersynctest is the conformance suite of hiersync's engines. A check is
// a function that every rank of a world runs at once, so the same list serves the
// in-process twin, where ranks are goroutines, and MPI, where they are processes.
package hiersynctest
