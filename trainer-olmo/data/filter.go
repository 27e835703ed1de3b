package data

import "fmt"

// Filter finds instances in which a short run of tokens repeats many times.
// The zero value takes OLMo's numbers.
type Filter struct {
	MaxPeriod int `yaml:"repetition_max_period,omitempty"` // longest repeating run [13]
	MinPeriod int `yaml:"repetition_min_period,omitempty"` // shortest repeating run [1]
	MaxCount  int `yaml:"repetition_max_count,omitempty"`  // repetitions that mask an instance [32]
}

// withDefaults fills in OLMo's numbers; they are part of the fingerprint.
func (f Filter) withDefaults() Filter {
	if f.MaxPeriod == 0 {
		f.MaxPeriod = 13
	}
	if f.MinPeriod == 0 {
		f.MinPeriod = 1
	}
	if f.MaxCount == 0 {
		f.MaxCount = 32
	}
	return f
}

// validate reports numbers that could match nothing, or everything.
func (f Filter) validate() error {
	d := f.withDefaults()
	if d.MinPeriod < 1 || d.MaxPeriod < d.MinPeriod || d.MaxCount < 1 {
		return fmt.Errorf("data: data.instance_filter: periods %d to %d, count %d; allowed 1 ≤ min ≤ max and a count of 1 and more",
			d.MinPeriod, d.MaxPeriod, d.MaxCount)
	}
	return nil
}

// Repetition is a run of tokens that repeats: tokens [Start, End) have the given
// period, Times = (End−Start)/Period whole ones.
type Repetition struct {
	Start, End, Period, Times int
}

// Repetitions calls yield for each repetition in tokens with a period from
// MinPeriod to MaxPeriod, until it returns false. As in OLMo-core's
// find_periodic_sequences a run is found only when it covers a whole row of the
// tokens laid out with Period columns, and is reported from three times on.
func (f Filter) Repetitions(tokens []int32, yield func(Repetition) bool) {
	f = f.withDefaults()
	for p := f.MinPeriod; p <= min(f.MaxPeriod, len(tokens)/3); p++ {
		if !repetitionsOf(tokens, p, yield) {
			return
		}
	}
}

// repetitionsOf scans maximal runs [i, j) of positions that equal the position
// one period before. A run counts when it holds an aligned row; then the
// repetition starts a period before it.
func repetitionsOf(tokens []int32, p int, yield func(Repetition) bool) bool {
	for i := p; i < len(tokens); i++ {
		if tokens[i] != tokens[i-p] {
			continue
		}
		j := i + 1
		for j < len(tokens) && tokens[j] == tokens[j-p] {
			j++
		}
		row := (i + p - 1) / p * p // first aligned position in the run
		r := Repetition{Start: i - p, End: j, Period: p, Times: (j - i + p) / p}
		if row+p <= j && r.Times > 2 && !yield(r) {
			return false
		}
		i = j
	}
	return true
}

// Keep reports whether no run repeats MaxCount times or more.
func (f Filter) Keep(tokens []int32) bool {
	f = f.withDefaults()
	keep := true
	f.Repetitions(tokens, func(r Repetition) bool {
		keep = r.Times < f.MaxCount
		return keep
	})
	return keep
}
