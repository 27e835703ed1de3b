// Package asteria is the second-order optimizer of a model.
package asteria
