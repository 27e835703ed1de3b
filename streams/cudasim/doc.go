// Package cudasim is the hand of a test on the simulated CUDA driver.
//
// The driver itself is C++ in src, built by make cudasim into .cache/cudasim: a
// libcuda.so.1 over host memory that runs our kernels on the CPU, orders streams
// and events as the driver does, accounts memory and fails when told. A process
// that has the folder on LD_LIBRARY_PATH opens it in place of the real driver; no
// product code knows of it.
package cudasim
