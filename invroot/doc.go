// Package invroot is a module of Asteria.
package invroot
