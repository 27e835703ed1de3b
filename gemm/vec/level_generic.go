//go:build (!amd64 && !arm64) || !gc || noasm

package vec

func level() isa { return portable }

var levelNames = [...]string{portable: "portable"}
