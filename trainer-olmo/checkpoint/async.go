package checkpoint

import (
	"errors"
	"slices"

	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// ErrBusy says that a save is still running; [Store.Wait] first.
var ErrBusy = errors.New("checkpoint: a save is running")

// Reserve allocates the shadow copy that SaveAsync writes from, of the size of
// the state's sections in memory, so that the first save costs no more than later
// ones. Held sections are not copied: see [State.Freeze].
func (s *Store) Reserve(st State) {
	if s.shadow == nil || !s.shadow.fits(st) {
		s.shadow = st.clone()
	}
}

// SaveAsync copies the state, or freezes what is not always in memory, and writes
// it beside the caller, who may go on changing it at once. At most one save runs: the caller waits for the one
// before, and learns how it ended, with [Store.Wait].
func (s *Store) SaveAsync(st State) error {
	if s.done != nil {
		return ErrBusy
	}
	s.Reserve(st)
	s.shadow.copyFrom(st)
	done := make(chan error, 1)
	s.done = done
	shadow, thaw := *s.shadow, func() {}
	if st.Freeze != nil {
		thaw = st.Freeze()
	}
	go func() {
		err := s.Save(shadow)
		thaw()
		done <- err
	}()
	return nil
}

// Busy reports whether a save is running that has not been waited for.
func (s *Store) Busy() bool { return s.done != nil }

// Wait returns when no save runs any more, with the error of the one that ran.
func (s *Store) Wait() error {
	if s.done == nil {
		return nil
	}
	err := <-s.done
	s.done = nil
	return err
}

// Poll is Wait when the save has ended; otherwise it returns false at once.
func (s *Store) Poll() (ended bool, err error) {
	if s.done == nil {
		return false, nil
	}
	select {
	case err := <-s.done:
		s.done = nil
		return true, err
	default:
		return false, nil
	}
}

// Close waits for the save that runs.
func (s *Store) Close() error { return s.Wait() }

// fits reports whether the shadow has the sections of st.
func (sh *State) fits(st State) bool {
	return sameSections(sh.Optimizer, st.Optimizer) && sameSections(sh.Runtime, st.Runtime) &&
		slices.EqualFunc(sh.Weights, st.Weights, func(a, b Tensor) bool { return sameSection(a.Section, b.Section) })
}

func sameSections(a, b []param.Section) bool { return slices.EqualFunc(a, b, sameSection) }

func sameSection(a, b param.Section) bool {
	ta, na := sectionType(a)
	tb, nb := sectionType(b)
	return a.Name == b.Name && ta == tb && na == nb && (a.Held == nil) == (b.Held == nil)
}

// clone copies a state with all that its slices point to.
func (sh State) clone() *State {
	c := sh
	c.Weights = slices.Clone(sh.Weights)
	for i := range c.Weights {
		c.Weights[i].Section = cloneSection(c.Weights[i].Section)
	}
	c.Optimizer, c.Runtime = cloneSections(sh.Optimizer), cloneSections(sh.Runtime)
	return &c
}

func cloneSections(s []param.Section) []param.Section {
	s = slices.Clone(s)
	for i := range s {
		s[i] = cloneSection(s[i])
	}
	return s
}

func cloneSection(s param.Section) param.Section {
	return param.Section{Name: s.Name, F32: slices.Clone(s.F32), F64: slices.Clone(s.F64), I64: slices.Clone(s.I64), Held: s.Held}
}

// copyFrom fills the shadow, which fits st.
func (sh *State) copyFrom(st State) {
	weights, optimizer, runtime := sh.Weights, sh.Optimizer, sh.Runtime
	for i, t := range st.Weights {
		copySection(weights[i].Section, t.Section)
	}
	copySections(optimizer, st.Optimizer)
	copySections(runtime, st.Runtime)
	*sh = st
	sh.Weights, sh.Optimizer, sh.Runtime = weights, optimizer, runtime
}

func copySections(dst, src []param.Section) {
	for i := range src {
		copySection(dst[i], src[i])
		dst[i].Held = src[i].Held
	}
}

func copySection(dst, src param.Section) {
	copy(dst.F32, src.F32)
	copy(dst.F64, src.F64)
	copy(dst.I64, src.I64)
}
