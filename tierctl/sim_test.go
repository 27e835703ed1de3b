package tierctl

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asteria-runtime/asteria/tierctl/tierctltest"
)

// TestSimulation runs seeded training-like loads over small tiers with random
// sizes, capacities, workers, hints and faults, and checks after every lease that
// the object holds what was last written to it.
func TestSimulation(t *testing.T) {
	n := uint64(120)
	if testing.Short() {
		n = 25
	}
	if os.Getenv("ASTERIA_LONG") != "" {
		n = 3000
	}
	for seed := range n {
		synctest.Test(t, func(t *testing.T) { simulate(t, seed) })
	}
}

type simulation struct {
	t       *testing.T
	seed    uint64
	c       *Controller
	m       *tierctltest.Memory
	objects int
	per     int // objects in a group
	mu      sync.Mutex
	written map[uint64]uint64
}

func simulate(t *testing.T, seed uint64) {
	g := rand.New(rand.NewPCG(seed, 5))
	s := &simulation{t: t, seed: seed, written: map[uint64]uint64{}, objects: 3 + g.IntN(10), per: 1 + g.IntN(2)}
	s.m = &tierctltest.Memory{Delay: time.Duration(g.IntN(3)) * time.Millisecond}
	faulty := g.IntN(3) == 0
	if faulty {
		s.m.Fault = saveFaults(seed)
	}
	const largest = 80
	workers := 1 + g.IntN(3)
	capacity := int64(largest * (workers*s.per + g.IntN(4)))
	opts := Options{
		Tiers:  []Tier{{Name: "host", Capacity: capacity}, {Name: "nvme", Backing: s.m}},
		Policy: Policy(g.IntN(2)), Queue: 1 + g.IntN(4), Movers: 1 + g.IntN(3),
	}
	if g.IntN(2) == 0 {
		opts.Tiers = append([]Tier{{Name: "device", Capacity: largest * int64(1+g.IntN(3))}}, opts.Tiers...)
	}
	c, err := New(opts)
	must(t, err)
	s.c = c
	for id := range s.objects {
		add := c.Add
		if g.IntN(2) == 0 {
			add = c.AddEmpty
		}
		must(t, add(uint64(id), int64(16+g.IntN(largest-16)), 0))
	}
	s.run(workers)
	time.Sleep(time.Second) // let hints in flight land
	s.checkBooks(faulty)
	must(t, c.Close())
}

// saveFaults fails about one save in four, by a rule that depends on the seed alone.
func saveFaults(seed uint64) func(string, uint64) error {
	var mu sync.Mutex
	g := rand.New(rand.NewPCG(seed, 6))
	return func(op string, _ uint64) error {
		mu.Lock()
		defer mu.Unlock()
		if op == "save" && g.IntN(4) == 0 {
			return errors.New("simulated write error")
		}
		return nil
	}
}

// run steps through all groups, workers taking them in turn, each object belonging
// to one worker at a time as in a training step.
func (s *simulation) run(workers int) {
	for step := range uint64(6) {
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				for first := w * s.per; first < s.objects; first += workers * s.per {
					s.use(step, first)
				}
			})
		}
		wg.Wait()
		if _, err := s.c.Rebalance(s.t.Context()); err != nil {
			s.t.Errorf("seed %d: %v", s.seed, err)
		}
	}
}

func (s *simulation) use(step uint64, first int) {
	var ids []uint64
	for id := first; id < min(first+s.per, s.objects); id++ {
		ids = append(ids, uint64(id))
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Hour)
	defer cancel()
	s.c.Prefetch(uint64((first + s.per) % s.objects))
	now := Tick(step)*Tick(s.objects) + Tick(first)
	if s.seed%2 == 0 {
		s.c.Ahead(now, now+1+Tick(s.seed/2)%Tick(s.objects))
	}
	l := new(Lease)
	err := s.c.Acquire(ctx, l, now, ids...)
	if err != nil {
		s.t.Errorf("seed %d, step %d, objects %v: %v", s.seed, step, ids, err)
		return
	}
	for i, id := range ids {
		s.check(l.Bytes(i), id, step)
		if err := s.c.Expect(id, now+Tick(s.objects)); err != nil {
			s.t.Error(err)
		}
		if s.discards(id, step) {
			s.mu.Lock()
			s.written[id] = 0
			s.mu.Unlock()
			l.Discard(i)
		}
	}
	l.Release(true)
}

// discards chooses, from the seed alone, one use in five whose contents end.
func (s *simulation) discards(id, step uint64) bool {
	return rand.New(rand.NewPCG(s.seed, step*64+id)).IntN(5) == 0
}

func (s *simulation) check(mem []byte, id, step uint64) {
	s.mu.Lock()
	want := s.written[id]
	s.written[id] = step*1000 + id + 1
	s.mu.Unlock()
	head, tail := binary.LittleEndian.Uint64(mem), binary.LittleEndian.Uint64(mem[len(mem)-8:])
	if head != want || tail != want {
		s.t.Errorf("seed %d, step %d: object %d holds %d … %d, want %d", s.seed, step, id, head, tail, want)
	}
	binary.LittleEndian.PutUint64(mem, step*1000+id+1)
	binary.LittleEndian.PutUint64(mem[len(mem)-8:], step*1000+id+1)
}

// checkBooks recomputes what the controller accounts for.
func (s *simulation) checkBooks(faulty bool) {
	levels, objects := s.c.Snapshot()
	used := make([]int64, len(levels))
	last := len(levels) - 1
	for _, o := range objects {
		if o.Tier != last && o.Tier != Nowhere {
			used[o.Tier] += o.Size
		}
		if o.Copy {
			used[last] += o.Size
		}
		if o.Held {
			s.t.Errorf("seed %d: object %d is held after the run", s.seed, o.ID)
		}
	}
	stats := s.c.Stats()
	for i, l := range levels {
		if l.Used != used[i] {
			s.t.Errorf("seed %d: tier %d accounts %d bytes, objects sum to %d", s.seed, i, l.Used, used[i])
		}
		if stats.Tiers[i].Over > 0 && !stats.Tiers[last].Degraded {
			s.t.Errorf("seed %d: tier %d is over its capacity without a fault", s.seed, i)
		}
	}
	if s.m.Used() != used[last] {
		s.t.Errorf("seed %d: the backing holds %d bytes, the books say %d", s.seed, s.m.Used(), used[last])
	}
	if stats.Tiers[last].Degraded && !faulty {
		s.t.Errorf("seed %d: degraded without a fault", s.seed)
	}
}
