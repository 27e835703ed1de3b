package asteria

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asteria-runtime/asteria/coherreg"
	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/hiersync"
	"github.com/asteria-runtime/asteria/kron"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// rank is one replica of a run on several.
type rank struct {
	params []param.Param[float32]
	rt     *Runtime[float32]
	log    []coherreg.Adoption
	err    error
}

// onRanks runs f on a replica on every rank of a twin.
func onRanks(t testing.TB, w hiersync.TwinOptions, o Options, f func(k *rank) error) []*rank {
	t.Helper()
	world, err := hiersync.NewTwin(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	all := make([]*rank, w.Ranks)
	var wg sync.WaitGroup
	for i, c := range world.Comms() {
		k := &rank{params: network[float32]()}
		all[i] = k
		wg.Go(func() {
			defer func() { k.err = errors.Join(k.err, c.Close()) }()
			eng := gemm.New(1 + i%2)
			defer eng.Close()
			own := o
			if own.Peers != nil {
				p := *own.Peers
				p.Comm = c
				own.Peers = &p
			}
			own.Async.Observer.Adopted = func(a coherreg.Adoption) { k.log = append(k.log, a) }
			if k.rt, k.err = New(k.params, eng, own); k.err != nil {
				c.Abort(k.err)
				return
			}
			defer k.rt.Close()
			if k.err = f(k); k.err != nil {
				c.Abort(k.err)
			}
		})
	}
	wg.Wait()
	return all
}

// steps takes steps [from, to] with the gradients of all ranks.
func (k *rank) steps(from, to int64) error {
	for step := from; step <= to; step++ {
		fill(k.params, 9, step)
		if err := k.rt.Step(step, 0.01); err != nil {
			return err
		}
	}
	return nil
}

// aloneFor is a run on one rank: its bits and its log.
func aloneFor(t testing.TB, o Options, to int64) (map[string]string, []coherreg.Adoption) {
	t.Helper()
	params := network[float32]()
	var log []coherreg.Adoption
	o.Async.Observer.Adopted = func(a coherreg.Adoption) { log = append(log, a) }
	r := newRuntime(t, params, 1, o)
	run(t, r, params, 1, to)
	return bits(params, r), log
}

// faulty delays, reorders and hands over late what ranks of two nodes send.
func faulty(ranks int) hiersync.TwinOptions {
	nodes := make([]int, ranks)
	for i := range nodes {
		nodes[i] = i % 2
	}
	return hiersync.TwinOptions{
		Ranks: ranks, Nodes: nodes, Options: hiersync.Options{Segment: 512},
		Faults: hiersync.Faults{Seed: 5, MaxDelay: 200 * time.Microsecond, LatePayload: true},
	}
}

// A run whose refreshes are shared by several ranks has, on all of them, the bits
// of one on one rank that refreshes every block, in native mode and beside
// training; and all ranks log the same adoptions.
func TestOwnersGiveTheBitsOfOneRank(t *testing.T) {
	for _, mode := range []Mode{Native, Asteria} {
		for _, m := range methods {
			t.Run(fmt.Sprint(mode, "/", m), func(t *testing.T) {
				t.Parallel()
				o := Options{Method: m, Frequency: 4, Stagger: m == kron.SOAP, Mode: mode, Async: Async{Lag: 3, LagStart: 6}, Kron: kron.Options{Start: 2}}
				want, log := aloneFor(t, o, 25)
				o.Peers = new(Peers)
				for _, ranks := range []int{2, 3, 4} {
					got := make([]map[string]string, ranks)
					all := onRanks(t, faulty(ranks), o, func(k *rank) error {
						err := k.steps(1, 25)
						got[k.rt.peers.comm.Rank()] = bits(k.params, k.rt)
						return err
					})
					for i, k := range all {
						if k.err != nil {
							t.Fatal(k.err)
						}
						same(t, fmt.Sprintf("rank %d of %d", i, ranks), got[i], want)
						if !slices.Equal(k.log, log) {
							t.Errorf("rank %d of %d adopted %v, one rank alone %v", i, ranks, k.log, log)
						}
					}
					if mode == Asteria && len(log) == 0 {
						t.Fatal("nothing was late: the test is void")
					}
				}
			})
		}
	}
}

// Every block has one owner, and only the owner runs its refreshes.
func TestOnlyTheOwnerRefreshes(t *testing.T) {
	var mu sync.Mutex
	ran := map[string]map[int]int{}
	o := Options{Frequency: 2, Mode: Asteria, Async: Async{LagStart: 5}, Peers: new(Peers)}
	for _, k := range onRanks(t, hiersync.TwinOptions{Ranks: 3}, o, func(k *rank) error {
		me := k.rt.peers.comm.Rank()
		k.rt.shadow.opts.Observer.Refreshed = func(block string, _ int, _ time.Time, _ time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			if ran[block] == nil {
				ran[block] = map[int]int{}
			}
			ran[block][me]++
		}
		return k.steps(1, 20)
	}) {
		if k.err != nil {
			t.Fatal(k.err)
		}
		for i, h := range k.rt.Health() {
			owner := k.rt.Owners()[i]
			if len(ran[h.Block]) != 1 || ran[h.Block][owner] < 5 {
				t.Errorf("%s of rank %d was refreshed by %v", h.Block, owner, ran[h.Block])
			}
			if h.Solver == "" || h.Precision == "" || !(h.Condition >= 0) || h.Refreshes < 5 {
				t.Errorf("every rank shows the evidence: %+v", h)
			}
		}
	}
}

// A refresh that fails on its owner changes nothing on any rank, is counted on all,
// and ends the run of all with the block's name when it happens too often.
func TestFailedRefreshIsNoChangeOnAllRanks(t *testing.T) {
	for _, mode := range []Mode{Native, Asteria} {
		fail := &failingSolver{from: 7, to: 12, limit: 30}
		o := Options{Method: kron.Shampoo, Frequency: 3, Mode: mode, Async: Async{LagStart: 5}, Kron: kron.Options{Start: 1, MaxFailures: 2}}
		o.test.solver = fail.wrap
		o.Peers = new(Peers)
		got := make([]map[string]string, 3)
		for i, k := range onRanks(t, hiersync.TwinOptions{Ranks: 3}, o, func(k *rank) error {
			err := k.steps(1, 20)
			got[k.rt.peers.comm.Rank()] = bits(k.params, k.rt)
			return err
		}) {
			if k.err != nil {
				t.Fatal(k.err)
			}
			same(t, fmt.Sprint(mode, ", rank ", i), got[i], got[0])
			if k.rt.Totals().Failed == 0 {
				t.Errorf("%v, rank %d: no failure was counted", mode, i)
			}
		}
		always := &failingSolver{from: 3, to: 1 << 30}
		o.test.solver = always.wrap
		named := 0
		for i, k := range onRanks(t, hiersync.TwinOptions{Ranks: 3}, o, func(k *rank) error { return k.steps(1, 60) }) {
			var e *kron.RefreshError
			if errors.As(k.err, &e) {
				named++
			} else if !errors.Is(k.err, hiersync.ErrAborted) { // one that heard it first
				t.Errorf("%v, rank %d: %v, want an error that names the block", mode, i, k.err)
			}
		}
		if named == 0 {
			t.Errorf("%v: no rank names the block", mode)
		}
	}
}

// failingSolver fails the roots of so many calls, counted over all ranks.
type failingSolver struct {
	mu       sync.Mutex
	calls    int
	from, to int
	limit    int
}

var errBroken = errors.New("broken")

func (f *failingSolver) wrap(r kron.Refresher[float32]) kron.Refresher[float32] {
	return brokenRoots{r, f}
}

type brokenRoots struct {
	kron.Refresher[float32]
	f *failingSolver
}

func (b brokenRoots) Root(ctx context.Context, dst, a gemm.Matrix[float32], exponent float64) error {
	b.f.mu.Lock()
	b.f.calls++
	broken := b.f.calls >= b.f.from && b.f.calls < b.f.to
	b.f.mu.Unlock()
	if broken {
		return errBroken
	}
	return b.Refresher.Root(ctx, dst, a, exponent)
}

// With a budget that allows it, only one of several refreshes in a row is begun and
// sent; what is due is always covered within the budget; with the default lag at the
// default interval nothing changes.
func TestSelectiveSendsLess(t *testing.T) {
	per := func(every, staleness int64, selective bool) (bytes float64, refreshes int64) {
		o := Options{
			Method: kron.Shampoo, Frequency: every, Mode: Asteria, Kron: kron.Options{Start: 1},
			Async: Async{Staleness: staleness, LagStart: -1, Selective: selective}, Peers: new(Peers),
		}
		const steps = 61
		total := int64(0)
		var mu sync.Mutex
		all := onRanks(t, hiersync.TwinOptions{Ranks: 4, Nodes: []int{0, 1, 0, 1}}, o, func(k *rank) error {
			if err := k.steps(1, 1); err != nil { // the first roots, inside the step
				return err
			}
			a, b := k.rt.Sent()
			err := k.steps(2, 1+steps)
			c, d := k.rt.Sent()
			mu.Lock()
			defer mu.Unlock()
			total += c + d - a - b
			return err
		})
		for _, k := range all {
			if k.err != nil {
				t.Fatal(k.err)
			}
			checkStaleness(t, k.log, every, staleness)
		}
		return float64(total) / steps, all[0].rt.Totals().Refreshes
	}
	one, _ := per(1, 1, true)
	five, n := per(1, 5, true)
	if ratio := one / five; ratio < 3 {
		t.Errorf("a budget of 5 sends %.0f bytes a step, one of 1 %.0f: only %.2f times fewer", five, one, ratio)
	}
	if n == 0 {
		t.Error("no refresh was adopted")
	}
	for _, s := range []int64{1, 5} {
		all, _ := per(10, s, false)
		if chosen, _ := per(10, s, true); chosen != all {
			t.Errorf("interval 10, budget %d: %v bytes a step, %v without selection", s, chosen, all)
		}
	}
}

// checkStaleness checks that every due refresh is covered by an adoption at most the
// budget later, whose snapshot is not older.
func checkStaleness(t *testing.T, log []coherreg.Adoption, every, budget int64) {
	t.Helper()
	last, covered := map[int]int64{}, map[int]int64{}
	for _, a := range log {
		if a.Block != 0 && covered[a.Block] == 0 && last[a.Block] == 0 {
			covered[a.Block] = a.AsOf - a.AsOf%every
		}
		oldest := (covered[a.Block]/every + 1) * every
		if covered[a.Block] > 0 && a.AsOf > covered[a.Block] && a.Step-oldest > budget {
			t.Errorf("block %d: due at %d, adopted at %d with a budget of %d", a.Block, oldest, a.Step, budget)
		}
		covered[a.Block], last[a.Block] = a.AsOf, a.Step
	}
}

// Averages of what all ranks compute are, where all compute the same, what the owner
// computes: exactly on two and four ranks, within rounding on three.
func TestAverageOfRoots(t *testing.T) {
	o := Options{Method: kron.Shampoo, Frequency: 4, Mode: Asteria, Async: Async{Lag: 3, LagStart: 6}, Kron: kron.Options{Start: 2}}
	want, _ := aloneFor(t, o, 25)
	o.Peers = &Peers{Roots: AverageRoots}
	for _, ranks := range []int{2, 3, 4} {
		got := make([]map[string]string, ranks)
		values := make([][]param.Param[float32], ranks)
		for i, k := range onRanks(t, faulty(ranks), o, func(k *rank) error {
			err := k.steps(1, 25)
			got[k.rt.peers.comm.Rank()] = bits(k.params, k.rt)
			return err
		}) {
			if k.err != nil {
				t.Fatal(k.err)
			}
			values[i] = k.params
			same(t, fmt.Sprintf("rank %d of %d", i, ranks), got[i], got[0])
		}
		if ranks != 3 {
			same(t, fmt.Sprint(ranks, " ranks"), got[0], want)
			continue
		}
		alone := network[float32]()
		r := newRuntime(t, alone, 1, Options{Method: o.Method, Frequency: 4, Mode: Asteria, Async: o.Async, Kron: o.Kron})
		run(t, r, alone, 1, 25)
		for i, p := range alone {
			for j, v := range p.Value {
				if d := v - values[0][i].Value[j]; d > 1e-5 || d < -1e-5 {
					t.Fatalf("%s[%d]: %g, on one rank %g", p.Name, j, values[0][i].Value[j], v)
				}
			}
		}
	}
	o.Method = kron.SOAP
	if err := o.Validate(); err == nil {
		t.Error("a mean of bases was accepted")
	}
}

// With ready adoption the ranks agree at every adoption point on what has landed, and
// the log repeats the run on any number of ranks.
func TestReadyOnRanksAgreesAndReplays(t *testing.T) {
	o := Options{Frequency: 1, Mode: Asteria, Async: Async{Adopt: Ready, Lag: -1, LagStart: 3}, Peers: new(Peers)}
	collect := func(ranks int) (got []map[string]string, log []coherreg.Adoption) {
		got = make([]map[string]string, ranks)
		all := onRanks(t, faulty(ranks), o, func(k *rank) error {
			err := k.steps(1, 40)
			got[k.rt.peers.comm.Rank()] = bits(k.params, k.rt)
			return err
		})
		for i, k := range all {
			if k.err != nil {
				t.Fatal(k.err)
			}
			same(t, fmt.Sprint("rank ", i), got[i], got[0])
			if !slices.Equal(k.log, all[0].log) {
				t.Fatalf("rank %d adopted %v, rank 0 %v", i, k.log, all[0].log)
			}
		}
		return got, all[0].log
	}
	first, log := collect(3)
	if len(log) < 10 {
		t.Fatalf("%d adoptions", len(log))
	}
	o.Async.Replay = log
	for _, ranks := range []int{2, 3} {
		again, replayed := collect(ranks)
		same(t, fmt.Sprint("replayed on ", ranks), again[0], first[0])
		if !slices.Equal(replayed, log) {
			t.Errorf("the replay has another log")
		}
	}
}

// After Settle every rank holds the results in flight: any of them can write the
// checkpoint, from which any number of ranks goes on with the same bits.
func TestSettledResultsReachAllRanks(t *testing.T) {
	for _, m := range []kron.Method{kron.Shampoo, kron.SOAP, kron.KLShampoo} {
		o := Options{Method: m, Frequency: 4, Mode: Asteria, Async: Async{Lag: 3, LagStart: 6}, Kron: kron.Options{Start: 2}}
		want, _ := aloneFor(t, o, 25)
		const at = 13
		o.Peers = new(Peers)
		saved := make([][]param.Section, 3)
		params := make([][]param.Param[float32], 3)
		for _, k := range onRanks(t, faulty(3), o, func(k *rank) error {
			if err := k.steps(1, at); err != nil {
				return err
			}
			if err := k.rt.Settle(t.Context()); err != nil {
				return err
			}
			me := k.rt.peers.comm.Rank()
			saved[me] = cloneSections(append(k.rt.Sections(), k.rt.PendingSections()...))
			params[me] = cloneParams(k.params)
			if err := k.steps(at+1, 25); err != nil {
				return err
			}
			same(t, "after a save", bits(k.params, k.rt), want)
			return nil
		}) {
			if k.err != nil {
				t.Fatal(k.err)
			}
		}
		flying := 0
		for i, s := range saved[0] {
			if strings.Contains(s.Name, "/values.") {
				continue // mean nothing where the refresh iterates
			}
			if s.Name != saved[2][i].Name || exact(s.F32) != exact(saved[2][i].F32) || !slices.Equal(s.I64, saved[2][i].I64) {
				t.Errorf("%v: %s differs between ranks", m, s.Name)
			}
			if len(s.I64) == len(pendingMeta{}) && s.I64[pendState] == stateResult {
				flying++
			}
		}
		if flying == 0 {
			t.Fatal("nothing was in flight: the test is void")
		}
		for _, ranks := range []int{1, 2, 4} {
			if ranks == 1 {
				o.Peers = nil
			} else {
				o.Peers = new(Peers)
			}
			for _, k := range onRanks(t, hiersync.TwinOptions{Ranks: ranks}, o, func(k *rank) error {
				for i, p := range k.params {
					copy(p.Value, params[1][i].Value)
				}
				for i, s := range append(k.rt.Sections(), k.rt.PendingSections()...) {
					copySection(t, s, saved[1][i])
				}
				if err := k.rt.Restored(); err != nil {
					return err
				}
				if err := k.steps(at+1, 25); err != nil {
					return err
				}
				same(t, fmt.Sprintf("%v restored on %d ranks", m, ranks), bits(k.params, k.rt), want)
				return nil
			}) {
				if k.err != nil {
					t.Fatal(k.err)
				}
			}
		}
	}
}

func cloneSections(all []param.Section) []param.Section {
	out := slices.Clone(all)
	for i := range out {
		out[i].F32, out[i].F64, out[i].I64 = slices.Clone(out[i].F32), slices.Clone(out[i].F64), slices.Clone(out[i].I64)
	}
	return out
}

func cloneParams(all []param.Param[float32]) []param.Param[float32] {
	out := slices.Clone(all)
	for i := range out {
		out[i].Value = slices.Clone(out[i].Value)
	}
	return out
}

// A rank that dies while roots are brought to all, or while its root is waited for,
// ends the step of all others within the deadline, with an error that names it.
func TestDeadOwnerEndsTheStepOfAll(t *testing.T) {
	const deadline = 2 * time.Second
	for _, at := range []int64{40, 60, 75, 90, 110} {
		o := Options{Frequency: 2, Mode: Asteria, Async: Async{LagStart: 4}, Peers: new(Peers)}
		w := hiersync.TwinOptions{
			Ranks: 4, Nodes: []int{0, 0, 1, 1}, Options: hiersync.Options{Deadline: deadline, Segment: 256},
			Faults: hiersync.Faults{Seed: uint64(at), LoseAt: at, Lose: 2, Stopped: at%20 == 0},
		}
		start := time.Now()
		for i, k := range onRanks(t, w, o, func(k *rank) error { return k.steps(1, 200) }) {
			var e *hiersync.RankError
			if i != 2 && (!errors.As(k.err, &e) || e.Rank != 2) {
				t.Errorf("message %d, rank %d: %v, want an error that names rank 2", at, i, k.err)
			}
		}
		if d := time.Since(start); d > 3*deadline+5*time.Second {
			t.Errorf("message %d: it took %v", at, d)
		}
	}
}

// A refresh that hangs on its owner for longer than the deadline ends the step of all
// ranks, with an error that names the owner.
func TestHungOwnerIsNamed(t *testing.T) {
	const deadline = time.Second
	release := make(chan struct{})
	o := Options{Method: kron.Shampoo, Frequency: 3, Mode: Asteria, Async: Async{LagStart: 4}, Peers: new(Peers), Kron: kron.Options{Start: 1}}
	var once sync.Once
	var late atomic.Bool // refreshes run beside training
	hung := make(chan int, 1)
	o.test.solver = func(r kron.Refresher[float32]) kron.Refresher[float32] {
		return hangingRoots{r, func(ctx context.Context) {
			if late.Load() {
				once.Do(func() { hung <- 0; <-release })
			}
		}}
	}
	w := hiersync.TwinOptions{Ranks: 3, Options: hiersync.Options{Deadline: deadline}}
	for i, k := range onRanks(t, w, o, func(k *rank) error {
		if err := k.steps(1, 5); err != nil {
			return err
		}
		late.Store(true)
		err := k.steps(6, 30)
		if k.rt.peers.comm.Rank() == 0 {
			select {
			case <-release:
			default:
				close(release)
			}
		}
		return err
	}) {
		var e *hiersync.RankError
		if !errors.As(k.err, &e) || !errors.Is(k.err, hiersync.ErrLate) {
			t.Errorf("rank %d: %v, want that a rank is late", i, k.err)
		}
	}
}

type hangingRoots struct {
	kron.Refresher[float32]
	before func(context.Context)
}

func (h hangingRoots) Root(ctx context.Context, dst, a gemm.Matrix[float32], exponent float64) error {
	if a.Rows == 30 { // the largest
		h.before(ctx)
	}
	return h.Refresher.Root(ctx, dst, a, exponent)
}

// A plan counts what a rank holds: results of all blocks, snapshots of its own.
func TestPlanOfARank(t *testing.T) {
	shapes := Shapes(network[float32]())
	for _, mode := range []Mode{Native, Asteria} {
		o := Options{Mode: mode}
		alone, err := PlanFor[float32](shapes, 1, o)
		if err != nil {
			t.Fatal(err)
		}
		o.Peers = &Peers{Ranks: 3}
		shared, err := PlanFor[float32](shapes, 1, o)
		if err != nil {
			t.Fatal(err)
		}
		a, b := alone.Class(ClassJobs), shared.Class(ClassJobs)
		if mode == Asteria && b >= a || mode == Native && b <= a {
			t.Errorf("%v: refreshes in flight take %d bytes on one of three ranks, %d alone", mode, b, a)
		}
	}
}
