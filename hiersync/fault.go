package hiersync

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Faults is what a twin's network does to messages, reproducibly. The zero value
// delivers at once.
type Faults struct {
	// Seed decides all that is random.
	Seed uint64
	// MaxDelay bounds the random delay of each message. Messages of different
	// senders or operations overtake each other; those of one sender within one
	// operation's lane stay in order, as MPI promises.
	MaxDelay time.Duration
	// SlowNode adds SlowBy to every message to and from the node with this index
	// among the nodes in the order of their lowest rank, when SlowBy > 0.
	SlowNode int
	SlowBy   time.Duration
	// LatePayload reads a message's bytes when it is delivered, as hardware does
	// that sends from the caller's memory: an operation that hands its buffer
	// back too early is found.
	LatePayload bool
	// Lose takes a rank away as it sends its message number LoseAt, counted from
	// 1 after the ranks have met; 0 loses nobody. Stopped leaves its connections
	// open (kill -STOP); otherwise they end (kill -9).
	LoseAt  int64
	Lose    int
	Stopped bool
}

// Validate checks the faults against a number of ranks.
func (f Faults) Validate(ranks int) error {
	if f.MaxDelay < 0 || f.SlowBy < 0 || f.LoseAt < 0 {
		return fmt.Errorf("hiersync: faults: delay %v, slow by %v, lose at %d: want 0 or more", f.MaxDelay, f.SlowBy, f.LoseAt)
	}
	if f.LoseAt > 0 && (f.Lose < 0 || f.Lose >= ranks) {
		return fmt.Errorf("hiersync: faults: lose rank %d of %d", f.Lose, ranks)
	}
	return nil
}

// network decides about delays of one sender's messages.
type network struct {
	faults Faults
	rng    *rand.Rand
	nodes  []int
}

func newNetwork(f Faults, sender int, nodes []int) *network {
	return &network{faults: f, rng: rand.New(rand.NewPCG(f.Seed, uint64(sender))), nodes: nodes}
}

// delay of the next message between two ranks.
func (n *network) delay(from, to int) time.Duration {
	var d time.Duration
	if n.faults.MaxDelay > 0 {
		d = time.Duration(n.rng.Int64N(int64(n.faults.MaxDelay)))
	}
	if slow := n.faults.SlowNode; n.nodes[from] == slow || n.nodes[to] == slow {
		d += n.faults.SlowBy
	}
	return d
}

// delays reports whether any message may be delayed.
func (n *network) delays() bool { return n.faults.MaxDelay > 0 || n.faults.SlowBy > 0 }
