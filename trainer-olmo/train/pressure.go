package train

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"sync/atomic"

	"github.com/asteria-runtime/asteria/tierctl"
)

// mPressure is the part of the tiers' budgets that the system wants back.
const mPressure = "tier/pressure"

// pressure watches how short of memory the system is, so that the tiers demote
// early. It changes where state lies and no result. nil: the system does not tell.
type pressure struct {
	files fs.FS
	log   *slog.Logger
	part  atomic.Uint64 // bits of a float64, 0 to 1
	told  bool          // that there is some
	blind bool          // a reading failed
}

// newPressure takes a first look; it returns nil where the system has no such
// files.
func newPressure(files fs.FS, log *slog.Logger) *pressure {
	p := &pressure{files: files, log: log}
	if p.look(); p.blind {
		return nil
	}
	return p
}

// look reads the pressure after a step. A reading that fails later is told once and
// counts as none.
func (p *pressure) look() {
	if p == nil || p.blind {
		return
	}
	part, err := tierctl.SystemPressure(p.files)
	if p.blind = err != nil; p.blind {
		part = 0
		if !errors.Is(err, errors.ErrUnsupported) {
			p.log.Warn("train: the pressure on memory could not be read", "err", err)
		}
	}
	p.part.Store(math.Float64bits(part))
	if some := part > 0; some != p.told {
		p.told = some
		p.tell(part)
	}
}

func (p *pressure) tell(part float64) {
	if part == 0 {
		p.log.Info("train: the system is no longer short of memory; the tiers use their whole budgets")
		return
	}
	p.log.Warn("train: the system is short of memory; the tiers give up a part of their budgets, which changes no result",
		"part", fmt.Sprintf("%.3f", part))
}

// wanted is what the tiers ask for, from any goroutine.
func (p *pressure) wanted() float64 { return math.Float64frombits(p.part.Load()) }
