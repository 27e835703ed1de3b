package checkpoint

import (
	"cmp"
	"slices"

	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// The files of a checkpoint.
const (
	weightsFile   = "model.state"
	optimizerFile = "optimizer.state"
	positionFile  = "position.state"
	runtimeFile   = "runtime.state"
	configFile    = "config.yaml"
	modelFile     = "config.json"
	metaFile      = "metadata.json"
)

// group is one file of sections and its part of the digest.
type group struct {
	file     string
	sections []param.Section
	digest   *string
}

// groups lists the files of a state in the order in which they are written.
func groups(d *Digest, st *State) []group {
	return []group{
		{weightsFile, sorted(st.Weights), &d.Weights},
		{optimizerFile, st.Optimizer, &d.Optimizer},
		{positionFile, st.Position.sections(), &d.Position},
		{runtimeFile, st.Runtime, &d.Runtime},
	}
}

// sorted lists the weights by name, the order of the file and of the digest.
func sorted(ts []Tensor) []param.Section {
	out := make([]param.Section, len(ts))
	for i, t := range ts {
		out[i] = t.Section
	}
	slices.SortFunc(out, func(a, b param.Section) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
