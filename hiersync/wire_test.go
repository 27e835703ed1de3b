package hiersync

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func FuzzDecodeFrame(f *testing.F) {
	b := make([]byte, frameSize+5)
	frame{kind: kindReduce, elem: elemFloat32, red: Average, seq: 7, total: 1 << 40, segment: 3, length: 5}.encode(b)
	f.Add(b)
	f.Add(b[:frameSize])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		fr, data, err := decodeFrame(b)
		if err != nil {
			return
		}
		if int(fr.length) != len(data) || len(data) > len(b)-frameSize {
			t.Fatalf("%d bytes announced, %d returned of %d", fr.length, len(data), len(b))
		}
		again := make([]byte, frameSize)
		fr.encode(again)
		if !bytes.Equal(again, b[:frameSize]) {
			t.Fatalf("%x is read as %+v, which is written as %x", b[:frameSize], fr, again)
		}
	})
}

func FuzzDecodeBeat(f *testing.F) {
	b := make([]byte, beatSize)
	encodeBeat(b, beatFault, 3, &RankError{Rank: 5, Op: "broadcast", Seq: 9, Cause: ErrStuck})
	f.Add(b)
	encodeBeat(b, beatAlive, 1<<63, nil)
	f.Add(slices.Clone(b))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) != beatSize {
			return
		}
		kind, _, e, ok := decodeBeat(b)
		if ok && (kind == beatFault) != (e != nil) {
			t.Fatalf("kind %d with error %v", kind, e)
		}
		if e != nil && (e.Cause == nil || e.Error() == "") {
			t.Fatalf("%+v has no cause", e)
		}
	})
}

func FuzzDecodePeer(f *testing.F) {
	b := make([]byte, helloSize)
	p := peer{node: "node of rank 3", contact: "4711 10.0.0.1 fe80::1"}
	if err := p.encode(b); err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		var p peer
		if p.decode(b) != nil || len(p.node) > maxName+1 || len(p.contact) > maxContact {
			return
		}
		var q peer
		again := make([]byte, helloSize)
		if err := errors.Join(p.encode(again), q.decode(again)); err != nil || p != q {
			t.Fatalf("%+v came back as %+v: %v", p, q, err)
		}
	})
}

func TestFaultsKeepTheirMeaningOnTheWire(t *testing.T) {
	for _, cause := range causes {
		for _, op := range []string{"", "allreduce", "broadcast", "allgather"} {
			want := RankError{Rank: 300, Op: op, Seq: 12, Cause: cause}
			var b [beatSize]byte
			encodeBeat(b[:], beatFault, 99, &want)
			kind, _, got, ok := decodeBeat(b[:])
			if !ok || kind != beatFault || *got != want {
				t.Errorf("%+v came back as %+v", want, got)
			}
		}
	}
}

// mesh connects ranks of this process by TCP.
func mesh(t *testing.T, n int, disturb func(addr string)) [][]net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	peers, listeners := make([]peer, n), make([]net.Listener, n)
	for i := range peers {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners[i] = l
		contact, err := contactOf(l, "127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		peers[i] = peer{node: fmt.Sprint(i % 2), contact: contact, token: [tokenSize]byte{byte(i), 1, 2}}
		disturb(l.Addr().String())
	}
	conns, errs := make([][]net.Conn, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { conns[i], errs[i] = tcpMesh(ctx, listeners[i], i, peers) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return conns
}

// strangers connect to a heartbeat port and say something else, or nothing.
func strangers(t *testing.T) func(addr string) {
	return func(addr string) {
		for _, text := range []string{"", "GET / HTTP/1.1\r\n\r\n" + strings.Repeat("x", 100)} {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			if text == "" {
				c.Close()
				continue
			}
			if _, err := c.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestMeshConnectsAllDespiteStrangers(t *testing.T) {
	const n = 5
	conns := mesh(t, n, strangers(t))
	for i := range n {
		for j := range n {
			if (conns[i][j] == nil) != (i == j) {
				t.Fatalf("rank %d has connection %v to rank %d", i, conns[i][j], j)
			}
			if i == j {
				continue
			}
			if _, err := conns[i][j].Write([]byte{byte(i), byte(j)}); err != nil {
				t.Fatal(err)
			}
			var b [2]byte
			if _, err := conns[j][i].Read(b[:]); err != nil || b != [2]byte{byte(i), byte(j)} {
				t.Fatalf("rank %d read %v of rank %d: %v", j, b, i, err)
			}
		}
	}
	for _, list := range conns {
		for _, c := range list {
			if c != nil {
				c.Close()
			}
		}
	}
}

// watchers starts the heartbeats of three ranks of four over TCP, without a world
// around them, and returns the connections of the fourth, which says nothing.
func watchers(t *testing.T, o Options) (comms []*Comm, silent []net.Conn) {
	const n = 4
	conns := mesh(t, n, func(string) {})
	for i := range n - 1 {
		c := &Comm{opts: o.withDefaults(), rank: i, size: n, wake: make(chan struct{}, 1), failed: make(chan struct{})}
		c.beats = newBeats(c, conns[i])
		comms = append(comms, c)
	}
	for _, c := range comms {
		c.beats.start()
		t.Cleanup(c.beats.close)
	}
	return comms, conns[n-1][:n-1]
}

func TestHeartbeatsOverTCP(t *testing.T) {
	o := Options{Deadline: 800 * time.Millisecond, Beat: 50 * time.Millisecond}
	for _, c := range []struct {
		name string
		do   func(conns []net.Conn)
		want error
	}{
		{"a process that dies", func(conns []net.Conn) {
			for _, conn := range conns {
				conn.Close()
			}
		}, ErrDead},
		{"garbage on one connection", func(conns []net.Conn) {
			conns[0].Write(bytes.Repeat([]byte{0xff}, beatSize))
		}, ErrDead},
		{"a process that is stopped", func([]net.Conn) {}, ErrStuck},
	} {
		t.Run(c.name, func(t *testing.T) {
			comms, silent := watchers(t, o)
			c.do(silent)
			for _, survivor := range comms {
				select {
				case <-survivor.Failed():
				case <-time.After(20 * time.Second):
					t.Fatalf("rank %d heard nothing", survivor.rank)
				}
				var e *RankError
				if err := survivor.Err(); !errors.As(err, &e) || e.Rank != 3 || !errors.Is(err, c.want) {
					t.Errorf("rank %d: %v, want rank 3: %v", survivor.rank, err, c.want)
				}
			}
		})
	}
}
