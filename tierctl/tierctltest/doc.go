// Package tierctltest provides a backing in memory with injected faults, and a
// conformance suite that every tierctl.Backing must pass.
package tierctltest
