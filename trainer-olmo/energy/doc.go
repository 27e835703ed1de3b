// Package energy reads how much energy the machine has used, in joules: of the
// processors' packages and memory from the RAPL counters that Linux shows in its
// powercap tree, and of GPUs from NVIDIA's management library when it is there.
//
// A [Meter] adds up what every counter has counted since the meter was opened.
// The counters are the machine's: they count the work of all processes, not only
// of this one. A counter that is not there or may not be read (most systems let
// only root read RAPL's) is absent: it never counts as zero, and it is no error.
//
// RAPL's counters wrap around, after a minute at full power on large processors.
// A meter notices one wrap between two samples, and no more than one; so sample
// at every step.
//
// # Concurrency
//
// A Meter belongs to one goroutine.
package energy
