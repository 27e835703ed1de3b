// Package doctor looks at the machine and says what a run would find there:
// processor and kernels, memory and its limits, disks, libraries, devices. Every
// line names what was looked for, so that "not found" can be acted upon.
// Nothing is changed, apart from one short file that is written and removed to
// try direct I/O.
package doctor
