package asteria

// Totals are counts over all blocks.
type Totals struct {
	AgeMax    int64 // steps since the statistics of the oldest result in use, 0 before the first
	Refreshes int64 // refreshes adopted, over the run
	Failed    int64 // refreshes that failed and kept the previous result, over the run
}

// Totals adds up what [Runtime.Health] lists block by block. It allocates
// nothing, so that it can be asked every step.
func (r *Runtime[T]) Totals() Totals {
	var t Totals
	for _, u := range r.units {
		m := u.state.Meta
		for k := range u.block.Modes() {
			if u.block.FactorOrder(k) > 0 && m.Version(k) > 0 {
				t.AgeMax = max(t.AgeMax, m.Calls()-m.AsOf(k))
			}
		}
		t.Refreshes += m.Refreshes()
		t.Failed += m.Failed()
	}
	return t
}
