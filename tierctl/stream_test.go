package tierctl

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asteria-runtime/asteria/tierctl/tierctltest"
)

// modelled is a drive that does one thing at a time, each as long as its bytes take,
// by the test's own clock.
type modelled struct {
	tierctltest.Memory
	busy        chan struct{} // holds a value while it works
	read, write float64       // bytes per second
	bytesRead   atomic.Int64
	bytesSaved  atomic.Int64
}

func (m *modelled) take(n int, rate float64, count *atomic.Int64) {
	m.busy <- struct{}{}
	defer func() { <-m.busy }()
	time.Sleep(time.Duration(float64(n) / rate * float64(time.Second)))
	count.Add(int64(n))
}

func (m *modelled) Save(ctx context.Context, id uint64, src []byte) error {
	m.take(len(src), m.write, &m.bytesSaved)
	return m.Memory.Save(ctx, id, src)
}

func (m *modelled) Load(ctx context.Context, id uint64, dst []byte) error {
	m.take(len(dst), m.read, &m.bytesRead)
	return m.Memory.Load(ctx, id, dst)
}

// cyclic is a load as of training: an update leases every block once, in the same
// order in each step, on some threads; between two updates nothing is leased.
type cyclic struct {
	t       *testing.T
	c       *Controller
	drive   *modelled
	sizes   []int64 // of the two objects of each block
	compute float64 // bytes of state that a thread updates per second
	pause   time.Duration
	threads int
	ahead   Tick
	state   int64 // bytes of all blocks
	host    int64 // bytes of them that fit

	mu           sync.Mutex
	leases, hits int
}

func (x *cyclic) use(step, place int) {
	now := Tick(step*len(x.sizes) + place)
	var l Lease
	start := time.Now()
	if err := x.c.Acquire(x.t.Context(), &l, now, uint64(2*place), uint64(2*place+1)); err != nil {
		x.t.Error(err)
		return
	}
	d := time.Since(start)
	x.mu.Lock()
	x.leases++
	if d < time.Millisecond {
		x.hits++
	}
	x.mu.Unlock()
	l.Expect(now + Tick(len(x.sizes)))
	x.c.Ahead(now, now+x.ahead)
	time.Sleep(time.Duration(float64(2*x.sizes[place]) / x.compute * float64(time.Second)))
	l.Release(true)
}

func (x *cyclic) step(step int) {
	var next sync.Mutex
	place := 0
	var wg sync.WaitGroup
	for range x.threads {
		wg.Go(func() {
			for {
				next.Lock()
				mine := place
				place++
				next.Unlock()
				if mine >= len(x.sizes) {
					return
				}
				x.use(step, mine)
			}
		})
	}
	wg.Wait()
	time.Sleep(x.pause)
}

// newCyclic makes a load of 35 blocks in two sizes over host memory for a part of
// them, all of it in use for what comes next.
func newCyclic(t *testing.T, part float64, threads int, read, write float64) *cyclic {
	t.Helper()
	x := &cyclic{t: t, threads: threads, compute: 500e3 / float64(threads), pause: 500 * time.Millisecond}
	x.drive = &modelled{busy: make(chan struct{}, 1), read: read, write: write}
	for i := range 35 {
		x.sizes = append(x.sizes, []int64{6350, 6350, 6350, 1750, 1750, 1750, 1750}[i%7])
		x.state += 2 * x.sizes[i]
	}
	x.host = int64(part * float64(x.state))
	c, err := New(Options{Tiers: []Tier{{Name: "host", Capacity: x.host}, {Name: "nvme", Backing: x.drive}}, Movers: 4, Staging: x.host})
	must(t, err)
	x.c, x.ahead = c, Tick(float64(len(x.sizes))*min(part, 1-part))
	for i, n := range x.sizes {
		for k := range uint64(2) {
			id := uint64(2*i) + k
			must(t, c.Add(id, n, 0), c.Expect(id, Tick(i)))
		}
	}
	return x
}

// steady runs the load until it repeats, and then one step, which it times.
func (x *cyclic) steady() (update time.Duration) {
	for step := range 4 {
		x.step(step)
	}
	x.leases, x.hits = 0, 0
	x.drive.bytesRead.Store(0)
	x.drive.bytesSaved.Store(0)
	start := time.Now()
	x.step(4)
	update = time.Since(start) - x.pause
	must(x.t, x.c.Close())
	return update
}

// Where the drive moves what is above the budget as fast as updates need it, no
// lease waits, whatever the part that fits and the number of threads.
func TestNoLeaseWaitsForADriveThatIsFastEnough(t *testing.T) {
	for _, part := range []float64{0.25, 0.5, 0.9} {
		for _, threads := range []int{1, 2, 3} {
			synctest.Test(t, func(t *testing.T) {
				x := newCyclic(t, part, threads, 1100e3, 2000e3)
				x.steady()
				if x.leases != len(x.sizes) || x.hits < x.leases*95/100 {
					t.Errorf("%.2f of the state fits, %d threads: %d of %d leases did not wait", part, threads, x.hits, x.leases)
				}
				// Each byte moves once at most, and what fits moves no more than what does not.
				most := min(x.state, 2*(x.state-x.host)) + x.state/10
				if r, w := x.drive.bytesRead.Load(), x.drive.bytesSaved.Load(); r > most || w > most {
					t.Errorf("%.2f of the state fits, %d threads: read %d, wrote %d of %d bytes, want at most %d",
						part, threads, r, w, x.state, most)
				}
			})
		}
	}
}

// A drive that is too slow works all the time, and does nothing twice: an update
// takes as long as what is above the budget takes to go and to come.
func TestASlowDriveIsNeverIdleInAnUpdate(t *testing.T) {
	for _, threads := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			x := newCyclic(t, 0.25, threads, 200e3, 400e3)
			update := x.steady()
			above := float64(x.state - x.host)
			need := time.Duration((above/x.drive.read + above/x.drive.write) * float64(time.Second))
			if update > need*12/10 {
				t.Errorf("%d threads: the update took %v, the drive needs %v", threads, update, need)
			}
			most, r, w := x.state*11/10, x.drive.bytesRead.Load(), x.drive.bytesSaved.Load()
			if r > most || w > most {
				t.Errorf("%d threads: read %d, wrote %d of %d bytes", threads, r, w, x.state)
			}
		})
	}
}
