package hiersync

import "sync/atomic"

// Stats counts what a rank sent and did since it joined. It is a copy.
type Stats struct {
	IntraBytes    int64 // sent to ranks of the same node, headers included
	IntraMessages int64
	InterBytes    int64 // sent to ranks of other nodes, headers included
	InterMessages int64
	Operations    int64 // ended without error
}

// counters are the live form of Stats.
type counters struct {
	intra, inter [2]atomic.Int64 // bytes, messages
	operations   atomic.Int64
}

// sent counts a message.
func (c *counters) sent(sameNode bool, bytes int) {
	link := &c.inter
	if sameNode {
		link = &c.intra
	}
	link[0].Add(int64(bytes))
	link[1].Add(1)
}

func (c *counters) reset() {
	for _, link := range []*[2]atomic.Int64{&c.intra, &c.inter} {
		link[0].Store(0)
		link[1].Store(0)
	}
	c.operations.Store(0)
}

// Stats returns a copy of the counters. Heartbeats are not counted.
func (c *Comm) Stats() Stats {
	n := &c.counters
	return Stats{
		IntraBytes: n.intra[0].Load(), IntraMessages: n.intra[1].Load(),
		InterBytes: n.inter[0].Load(), InterMessages: n.inter[1].Load(),
		Operations: n.operations.Load(),
	}
}
