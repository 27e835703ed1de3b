package uvm

import (
	"bytes"
	"errors"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
)

func alloc(t *testing.T, a Allocator, n int64) *Buffer {
	t.Helper()
	b, err := a.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func TestBuffersHaveTheAskedLengthAreZeroedAndPageAligned(t *testing.T) {
	pool, err := NewPool(Host{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, a := range map[string]Allocator{"host": Host{}, "pinned": NewPinned(nil), "pool": pool} {
		for _, n := range []int64{1, 3, 4, 511, 4096, 4097, 1 << 20, hugePage + 1} {
			b := alloc(t, a, n)
			if int64(len(b.Bytes())) != n || b.Len() != n || cap(b.Bytes()) != int(n) {
				t.Errorf("%s: %d bytes asked, %d given", name, n, len(b.Bytes()))
			}
			if b.Addr()%4096 != 0 {
				t.Errorf("%s: %d bytes at %#x: not page-aligned", name, n, b.Addr())
			}
			if len(b.Float32s()) != int(n/4) || len(b.Float64s()) != int(n/8) {
				t.Errorf("%s: %d bytes: %d float32, %d float64", name, n, len(b.Float32s()), len(b.Float64s()))
			}
			if i := bytes.IndexFunc(b.Bytes(), func(r rune) bool { return r != 0 }); i >= 0 {
				t.Errorf("%s: byte %d of a new buffer is not zero", name, i)
			}
		}
	}
}

func TestViewsShareTheBuffersMemory(t *testing.T) {
	b := alloc(t, Host{}, 64)
	b.Float32s()[1] = 1
	if got := b.Bytes()[4:8]; !bytes.Equal(got, []byte{0, 0, 0x80, 0x3f}) {
		t.Fatalf("bytes of float32 1: %x", got)
	}
}

func TestBadSizesAreErrors(t *testing.T) {
	pool, _ := NewPool(Host{}, 0)
	for _, a := range []Allocator{Host{}, NewPinned(nil), pool} {
		for _, n := range []int64{0, -1} {
			if _, err := a.Alloc(n); !errors.Is(err, ErrSize) {
				t.Errorf("%T: %d bytes: %v, want ErrSize", a, n, err)
			}
		}
	}
	if _, err := NewPool(nil, 0); err == nil {
		t.Error("a pool without an allocator was made")
	}
	if _, err := NewPool(Host{}, -1); err == nil {
		t.Error("a negative limit was accepted")
	}
}

func TestReleaseZeroesAndKeepsTheRange(t *testing.T) {
	b := alloc(t, Host{}, 3<<20)
	addr := b.Addr()
	for i := range b.Bytes() {
		b.Bytes()[i] = 0xff
	}
	if err := b.Release(); err != nil {
		t.Fatal(err)
	}
	if b.Addr() != addr || bytes.ContainsFunc(b.Bytes(), func(r rune) bool { return r != 0 }) {
		t.Fatal("released memory moved or kept its contents")
	}
	b.Bytes()[7] = 1 // usable again
}

func TestEveryHintIsAcceptedAndUnknownOnesAreNot(t *testing.T) {
	b := alloc(t, Host{}, 10000)
	b.Bytes()[9999] = 5
	for h := WillNeed; h <= Cold; h++ {
		if err := b.Advise(h); err != nil {
			t.Errorf("hint %d: %v", h, err)
		}
	}
	if err := b.Prefetch(); err != nil {
		t.Error(err)
	}
	if b.Bytes()[9999] != 5 {
		t.Error("a hint changed the contents")
	}
	if err := b.Advise(9); err == nil {
		t.Error("hint 9 was accepted")
	}
}

func TestUseAfterClosePanicsAndCloseIsIdempotent(t *testing.T) {
	b, err := Host{}.Alloc(100)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.Close(), b.Close()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if recover() == nil {
			t.Fatal("Bytes of a closed buffer did not panic")
		}
	}()
	b.Bytes()
}

func TestARefusedLockFallsBackWithOneWarning(t *testing.T) {
	if raceEnabled || runtime.GOOS != "linux" {
		t.Skip("buffers come from the Go heap here, which has no room for what this test asks for")
	}
	var out strings.Builder
	p := NewPinned(slog.New(slog.NewTextHandler(&out, nil)))
	// More than any machine has: mapping succeeds lazily, locking cannot.
	const huge = 1 << 44
	for range 2 {
		b, err := p.Alloc(huge)
		if err != nil {
			t.Skipf("the system refuses to map %d bytes: %v", int64(huge), err)
		}
		if b.Pinned() {
			t.Fatal("16 TiB were locked")
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if p.Refused() != 2 || strings.Count(out.String(), "level=WARN") != 1 {
		t.Fatalf("refused %d, log:\n%s", p.Refused(), out.String())
	}
}

func TestSizeClassesWasteAFifthAtMost(t *testing.T) {
	g := rand.New(rand.NewPCG(1, 2))
	for range 10000 {
		n := 1 + g.Int64N(1<<40)
		c := class(n)
		if c < n || n > 4096 && c-n > n/4 || class(c) != c {
			t.Fatalf("class(%d) = %d", n, c)
		}
	}
}

func TestPoolReusesClosedBuffersZeroed(t *testing.T) {
	p, _ := NewPool(Host{}, 0)
	b, _ := p.Alloc(5000)
	b.Bytes()[0] = 9
	addr := b.Addr()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	again, _ := p.Alloc(4900)
	if again.Addr() != addr || again.Bytes()[0] != 0 {
		t.Fatal("the buffer was not reused, or not zeroed")
	}
	if s := p.Stats(); s.Reused != 1 || s.Fresh != 1 || s.InUse != class(5000) || s.Idle != 0 {
		t.Fatalf("stats %+v", s)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestPoolKeepsItsLimitAndGivesIdleBuffersBackFirst(t *testing.T) {
	p, _ := NewPool(Host{}, 3*4096)
	a, _ := p.Alloc(4096)
	b, _ := p.Alloc(8192)
	if _, err := p.Alloc(1); !errors.Is(err, ErrLimit) || !strings.Contains(err.Error(), "12288 bytes in use + 4096 asked for > 12288") {
		t.Fatalf("err = %v", err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := p.Alloc(4096) // another class than the idle one
	if err != nil {
		t.Fatal(err)
	}
	if s := p.Stats(); s.InUse != 8192 || s.Idle != 0 || s.Peak != 3*4096 {
		t.Fatalf("stats %+v", s)
	}
	if err := p.Close(); err == nil || !strings.Contains(err.Error(), "8192 bytes in use") {
		t.Fatalf("closing with buffers out: %v", err)
	}
	if err := errors.Join(a.Close(), c.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestPoolHammer lets goroutines allocate, write and close; two holders of one
// buffer would see each other's bytes.
func TestPoolHammer(t *testing.T) {
	p, _ := NewPool(Host{}, 1<<20)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			g := rand.New(rand.NewPCG(uint64(w), 3))
			for range 500 {
				b, err := p.Alloc(1 + g.Int64N(60000))
				if err != nil {
					t.Error(err)
					return
				}
				mem := b.Bytes()
				mem[0], mem[len(mem)-1] = byte(w+1), byte(w+1)
				if mem[0] != byte(w+1) || mem[len(mem)-1] != byte(w+1) {
					t.Error("a buffer has two owners")
				}
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
