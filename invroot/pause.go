package invroot

import "context"

// pause is Options.Pause at the points where a refresh may be held back.
//
// Note: pauses
//
// The points lie on the goroutine that called the solver, outside what is spread
// over the threads of an engine: a pause there holds back no other thread. Where
// a solver has one thread, its loops over chunks are such points too. No point
// lies inside a product, so that the longest stretch is one of those.
type pause func()

// point gives way.
func (p pause) point() {
	if p != nil {
		p()
	}
}

// poll gives way and looks whether anybody still waits for the refresh.
func (p pause) poll(ctx context.Context) error {
	p.point()
	return ctx.Err()
}
