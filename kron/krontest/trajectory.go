package krontest

import (
	"path/filepath"
	"testing"

	"github.com/asteria-runtime/asteria/kron"
)

// Trajectory is one recorded run of a whole parameter, for those who run blocks in
// another way than [Run] does.
type Trajectory struct {
	Name      string
	Options   kron.Options
	LR        float64
	Ridge     float64 // absolute, added to a factor before its root is taken
	Delay     int64   // calls from a snapshot to its adoption
	LateFirst bool    // the first root is as late as the others
	Shape     []int
	Param0    []float64
	// First holds recorded eigenvectors that the first decompositions are to return,
	// side by side, row-major, where a factor is rank deficient and its null space
	// the solver's choice.
	First     [][]float64
	Grads     [][]float64
	Want      [][]float64 // parameters after each call
	Tolerance float64     // largest difference of an element, in float64
}

// Trajectories reads the cases of the files in dir that match pattern. It leaves
// out those that prescribe the solver's results, and like [Run] skips a family
// that is not there and fails in a folder without any golden file.
func Trajectories(t *testing.T, dir, pattern string) []Trajectory {
	t.Helper()
	if all, _ := filepath.Glob(filepath.Join(dir, "*.json")); len(all) == 0 {
		t.Fatalf("no golden file in %s", dir)
	}
	paths, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) == 0 {
		t.Skipf("%s has no %s", dir, pattern)
	}
	var out []Trajectory
	for _, path := range paths {
		f, err := readFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i := range f.Cases {
			if c := &f.Cases[i]; c.CompareMode == "" {
				out = append(out, f.trajectory(t, c, filepath.Base(path)))
			}
		}
	}
	return out
}

func (f *file) trajectory(t *testing.T, c *testCase, name string) Trajectory {
	t.Helper()
	m, err := f.method(c)
	if err != nil {
		t.Fatal(err)
	}
	o, err := c.options(m)
	if err != nil {
		t.Fatal(err)
	}
	out := Trajectory{
		Name: name + "/" + c.Name, Options: o, LR: c.lr(m), Delay: int64(c.DelayCalls + c.DelaySteps),
		Shape: c.Shape, Param0: c.Param0, Grads: c.Grads, Want: c.AfterCall, Tolerance: f.tolerance64(c),
		First: present(c.InitialQ), LateFirst: m == kron.Shampoo || m == kron.EigenShampoo,
	}
	if m == kron.Shampoo {
		out.Ridge = max(0, o.Epsilon)
	}
	if out.Want == nil {
		out.Want = c.AfterStep
	}
	return out
}
