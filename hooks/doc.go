// Package hooks is a module of Asteria.
package hooks
