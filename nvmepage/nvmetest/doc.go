// Package nvmetest provides data files with injected faults for nvmepage, for the
// tests of the store and of what is built on it.
package nvmetest
