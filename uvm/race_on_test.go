//go:build race

package uvm

const raceEnabled = true
