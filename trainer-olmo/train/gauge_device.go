package train

import "github.com/asteria-runtime/asteria/trainer-olmo/asteria"

// The metrics of an accelerator whose memory moves, of a step in bytes: before an
// operation needed it, when one did, and back to the host before a snapshot.
const (
	mMovedAhead = "device/moved ahead (bytes)"
	mMovedLate  = "device/moved late (bytes)"
	mMovedBack  = "device/moved back (bytes)"
)

// mover is an optimizer that may compute on an accelerator.
type mover interface {
	Moved() (asteria.Moved, bool)
}

var _ mover = (*asteria.Runtime[float32])(nil)

// accelerated reports whether an optimizer computes on an accelerator.
func accelerated(opt any) bool {
	o, ok := opt.(mover)
	if !ok {
		return false
	}
	_, ok = o.Moved()
	return ok
}

// deviceGauge writes what an accelerator's memory moved in a step.
type deviceGauge struct{ last asteria.Moved }

func (g *deviceGauge) record(m *metricsFile, opt any) {
	o, ok := opt.(mover)
	if !ok {
		return
	}
	now, ok := o.Moved()
	if !ok {
		return
	}
	m.int(mMovedAhead, now.Ahead-g.last.Ahead)
	m.int(mMovedLate, now.Late-g.last.Late)
	m.int(mMovedBack, now.Back-g.last.Back)
	g.last = now
}
