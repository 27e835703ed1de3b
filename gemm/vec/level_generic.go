//go:build !amd64 || !gc || noasm

package vec

func level() isa { return portable }
