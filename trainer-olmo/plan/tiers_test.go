package plan

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/asteria-runtime/asteria/trainer-olmo/config"
)

// state is the bytes that tiers hold of a plan without tiers.
func state(p *Plan) int64 {
	return class(p, "optimizer moments") + class(p, "factors") + class(p, "roots and bases") +
		class(p, "snapshots in flight") + class(p, "spare slots")
}

// Whatever the limits: every byte of the state is in one tier, no tier is above
// its limit, RAM is used before NVMe, and what is in RAM is what the lines add up
// to.
func TestEveryByteIsPlacedOnce(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 7))
		method := []string{"soap", "shampoo", "kl-shampoo"}[rng.IntN(3)]
		mode := []string{"native", "asteria"}[rng.IntN(2)]
		set := []string{"optimizer.name=" + method, "runtime.mode=" + mode}
		whole := plan(t, set...)
		all := state(whole)
		limits := [2]int64{rng.Int64N(all) + 64<<20, rng.Int64N(all) + 64<<20} // the largest group fits
		p := plan(t, append(set, fmt.Sprintf("tiers.device=%d", limits[0]), fmt.Sprintf("tiers.host=%d", limits[1]), "tiers.nvme.path=/nvme")...)
		var used [3]int64
		for i, name := range []string{"device", "host", "nvme"} {
			for _, x := range p.Tiers {
				if x.Name == name {
					used[i] = x.Bytes
				}
			}
		}
		ram := used[0] + used[1]
		if ram+used[2] != all || used[0] > limits[0] || used[1] > limits[1] {
			t.Errorf("seed %d: %v of %v for a state of %d", seed, used, limits, all)
		}
		if used[2] > 0 && ram != limits[0]+limits[1] {
			t.Errorf("seed %d: %d bytes on NVMe and %d of %v in RAM", seed, used[2], ram, limits)
		}
		if ram != state(p) {
			t.Errorf("seed %d: %d bytes in RAM, the lines say %d", seed, ram, state(p))
		}
		var tensors [3]int64
		for _, x := range p.Tensors {
			for i, n := range x.Tiers {
				tensors[i] += n
			}
		}
		if tensors != used {
			t.Errorf("seed %d: the parameters add up to %v, the tiers to %v", seed, tensors, used)
		}
	}
}

// Factors prefer the device tier, everything else the host tier.
func TestFactorsPreferTheDevice(t *testing.T) {
	p := plan(t, "optimizer.name=soap", "tiers.device=1GiB", "tiers.host=1GiB")
	if p.Tiers[0].Bytes != class(p, "factors") || p.Tiers[1].Bytes != class(p, "roots and bases")+class(p, "optimizer moments") || len(p.Tiers) != 2 {
		t.Errorf("tiers %+v, memory %+v", p.Tiers, p.Memory)
	}
}

// A state that is placed is saved in a stream: only the weights are copied. And
// it is not on the Go heap.
func TestPlacedStateHasNoCopy(t *testing.T) {
	p := plan(t, "optimizer.name=soap", "tiers.host=2GiB")
	if got := class(p, "checkpoint snapshot"); got != 4*p.Parameters {
		t.Errorf("a snapshot of %d bytes for weights of %d", got, 4*p.Parameters)
	}
	if p.offHeap != state(p) {
		t.Errorf("%d bytes off the heap, the state has %d", p.offHeap, state(p))
	}
	q := plan(t, "optimizer.name=soap")
	if q.HeapLimit() <= q.Total() || q.HeapLimit() > q.Total()+q.Total()/64+16<<20 || len(q.Tiers) != 0 {
		t.Errorf("without tiers the heap may have %d bytes of %d planned", q.HeapLimit(), q.Total())
	}
}

func TestStateOverItsTiersIsRefusedWithTheArithmetic(t *testing.T) {
	for name, c := range map[string]struct {
		set  []string
		want []string
	}{
		"no NVMe": {[]string{"optimizer.name=soap", "tiers.host=100MiB"},
			[]string{"factors ", "+ roots ", "+ moments ", "tiers.device 0 B + tiers.host 100.00 MiB allow 100.00 MiB", "too few; set tiers.nvme.path"}},
		"device alone": {[]string{"optimizer.name=soap", "tiers.device=100MiB"}, []string{"tiers.device 100.00 MiB + tiers.host 0 B allow 100.00 MiB"}},
		"a small drive": {[]string{"optimizer.name=soap", "tiers.host=100MiB", "tiers.nvme.path=/n", "tiers.nvme.size=1MiB"},
			[]string{"+ tiers.nvme.size 1.00 MiB allow 101.00 MiB"}},
		"first order": {[]string{"tiers.host=100MiB"}, []string{"moments of adamw need 204.02 MiB", "allow 100.00 MiB, 104.02 MiB too few"}},
		"a step that does not fit": {[]string{"optimizer.name=soap", "tiers.host=1MiB", "tiers.nvme.path=/n"},
			[]string{"the step of the largest block needs ", "of state at once, tiers.device 0 B + tiers.host 1.00 MiB allow 1.00 MiB"}},
	} {
		cfg, err := config.Parse("f.yaml", []byte(base), c.set)
		if err != nil {
			t.Fatal(err)
		}
		_, err = New(cfg)
		for _, want := range c.want {
			if !errors.Is(err, ErrOverBudget) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
	}
}

func TestTiersArePrinted(t *testing.T) {
	p := plan(t, "optimizer.name=soap", "tiers.host=100MiB", "tiers.nvme.path=/n")
	var tensors strings.Builder
	if err := p.WriteTensors(&tensors); err != nil {
		t.Fatal(err)
	}
	for out, wants := range map[string][]string{
		text(t, p):       {"optimizer's state", "\nhost                            104,857,600   100.00 MiB  of 100.00 MiB\n", "\nnvme ", "no limit", "more on NVMe"},
		tensors.String(): {"           device             host             nvme\n"},
	} {
		for _, want := range wants {
			if !strings.Contains(out, want) {
				t.Errorf("lacks %q in\n%s", want, out)
			}
		}
	}
	if out := text(t, plan(t, "optimizer.name=soap")); strings.Contains(out, "nvme") {
		t.Errorf("a plan without tiers speaks of them:\n%s", out)
	}
}
