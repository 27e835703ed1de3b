// Package gorgonia shares CUDA contexts and streams between gorgonia.org/cu and
// package streams, so that a program that works on Gorgonia's context and one that
// works on ours see one device.
//
// The adapter is built with the tag cuda. It is a module of its own because
// importing gorgonia.org/cu needs cgo and CUDA's headers, adds some hundred modules
// to a build, and ends the process where there is no GPU. Those who take streams
// alone have none of that.
package gorgonia
