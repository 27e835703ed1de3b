// Package kron is a module of Asteria.
package kron
