package tierctltest

import "testing"

func TestMemoryConforms(t *testing.T) {
	Run(t, func(*testing.T) Backing { return &Memory{} })
}
