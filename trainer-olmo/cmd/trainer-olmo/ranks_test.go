//go:build linux

package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/asteria-runtime/asteria/trainer-olmo/checkpoint"
)

// TestWorldsEndWithTheDigestOfOne: under mpirun, on one node and on two, a run ends
// with the digest of one process.
func TestWorldsEndWithTheDigestOfOne(t *testing.T) {
	needMPIRun(t)
	file, folder := lostConfig(t)
	set := []string{"optimizer.name=soap", "train.steps=12", "train.micro_batch_size=32", "train.global_batch_size=96", "checkpoint.interval=0"}
	alone := filepath.Join(filepath.Dir(folder), "alone")
	must(t, append([]string{"train", file, "save_folder=" + alone}, set...)...)
	want := mustDigest(t, alone)
	for name, c := range map[string]lostCase{"2 ranks": {ranks: 2}, "4 ranks, sharded": {ranks: 4, set: []string{"parallel.shard=true"}}, "2 nodes": {ranks: 4, nodes: true}} {
		dir := filepath.Join(filepath.Dir(folder), strings.ReplaceAll(name, " ", "-"))
		c.set = append(append(c.set, set...), "save_folder="+dir)
		w := launch(t, c, file)
		if err := <-w.done; err != nil {
			t.Fatalf("%s: %v\n%s", name, err, w.out)
		}
		if d := mustDigest(t, dir); d.Total != want.Total {
			t.Errorf("%s: the run ends with\n%v\nthat of one process with\n%v", name, d, want)
		}
		if c, err := checkpoint.Load(dir); err != nil || c.Meta.Position.Step != 12 {
			t.Errorf("%s: %v, want a checkpoint of step 12", name, err)
		}
	}
}
