package hiersync

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// meshHello is what both sides of a new heartbeat connection send first: the
// world's token and their rank. A stranger at the port is turned away.
const meshHello = tokenSize + 8

// dialTimeout bounds one attempt at one address.
const dialTimeout = 3 * time.Second

// contactOf describes a listener for the other ranks: port, then addresses.
// host is what the user said, empty for all global addresses of the machine.
func contactOf(l net.Listener, host string) (string, error) {
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return "", err
	}
	parts := []string{port}
	if host != "" {
		return strings.Join(append(parts, host), " "), nil
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return "", err
	}
	length := len(port)
	for _, a := range addrs {
		ip, ok := a.(*net.IPNet)
		if !ok || !ip.IP.IsGlobalUnicast() || length+1+len(ip.IP.String()) > maxContact {
			continue
		}
		length += 1 + len(ip.IP.String())
		parts = append(parts, ip.IP.String())
	}
	return strings.Join(parts, " "), nil
}

// tcpMesh connects rank me with every other: a rank dials all lower ones and
// accepts all higher ones. The listener is closed at the end.
func tcpMesh(ctx context.Context, l net.Listener, me int, peers []peer) ([]net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	defer l.Close()
	conns := make([]net.Conn, len(peers))
	var accepted error
	var wg sync.WaitGroup
	wg.Go(func() { accepted = acceptAll(ctx, l, me, peers, conns) })
	var dialed error
	for rank := range me {
		if conns[rank], dialed = dialPeer(ctx, me, rank, peers); dialed != nil {
			cancel()
			break
		}
	}
	wg.Wait()
	if err := errors.Join(dialed, accepted); err != nil {
		for _, c := range conns {
			if c != nil {
				c.Close()
			}
		}
		return nil, err
	}
	return conns, nil
}

// acceptAll fills conns above me.
func acceptAll(ctx context.Context, l net.Listener, me int, peers []peer, conns []net.Conn) error {
	for missing := len(peers) - 1 - me; missing > 0; {
		conn, err := l.Accept()
		if err != nil {
			return fmt.Errorf("waiting for %d connections: %w", missing, errors.Join(context.Cause(ctx), err))
		}
		rank, err := greet(ctx, conn, me, false, peers[0].token)
		if err != nil || rank <= me || rank >= len(peers) || conns[rank] != nil {
			conn.Close() // a stranger
			continue
		}
		conns[rank] = conn
		missing--
	}
	return nil
}

// dialPeer connects to a lower rank, by any of its addresses.
func dialPeer(ctx context.Context, me, rank int, peers []peer) (net.Conn, error) {
	parts := strings.Fields(peers[rank].contact)
	if len(parts) == 0 {
		return nil, fmt.Errorf("rank %d gave no address", rank)
	}
	hosts := parts[1:]
	if peers[rank].node == peers[me].node {
		hosts = append([]string{"127.0.0.1", "::1"}, hosts...)
	}
	var errs []error
	for _, host := range hosts {
		conn, err := dialOne(ctx, net.JoinHostPort(host, parts[0]), me, rank, peers[0].token)
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("no way to rank %d: %w", rank, errors.Join(errs...))
}

func dialOne(ctx context.Context, addr string, me, rank int, token [tokenSize]byte) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	got, err := greet(ctx, conn, me, true, token)
	if err != nil || got != rank {
		conn.Close()
		return nil, fmt.Errorf("%s answers as rank %d: %w", addr, got, errors.Join(errFrame, err))
	}
	return conn, nil
}

// greet exchanges token and rank, within the dial timeout. The side that accepted
// speaks second, and not to strangers.
func greet(ctx context.Context, conn net.Conn, me int, dialed bool, token [tokenSize]byte) (int, error) {
	until := time.Now().Add(dialTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(until) {
		until = d
	}
	conn.SetDeadline(until)
	var mine, other [meshHello]byte
	copy(mine[:], token[:])
	binary.LittleEndian.PutUint64(mine[tokenSize:], uint64(me))
	if dialed {
		if _, err := conn.Write(mine[:]); err != nil {
			return -1, err
		}
	}
	if _, err := io.ReadFull(conn, other[:]); err != nil {
		return -1, err
	}
	if [tokenSize]byte(other[:tokenSize]) != token {
		return -1, errFrame
	}
	if !dialed {
		if _, err := conn.Write(mine[:]); err != nil {
			return -1, err
		}
	}
	conn.SetDeadline(time.Time{})
	return int(binary.LittleEndian.Uint64(other[tokenSize:])), nil
}
