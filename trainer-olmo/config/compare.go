package config

import (
	"cmp"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
)

// Comparison is a set of runs that differ in a few keys. It is written as the
// section `compare` of a configuration, whose other keys are the base of every
// run; `train` ignores the section and trains the base.
//
//	compare:
//	  seeds: [1, 2, 3]              # every run once with each, default: the file's seed
//	  baseline: adamw               # default: the first run
//	  runs:
//	    - name: adamw
//	      sweep: {optimizer.lr: [1e-3, 2e-3]}
//	    - name: soap
//	      set: {optimizer.name: soap, train.steps: 175}
type Comparison struct {
	Folder   string // holds one run folder for each run, and the report
	Baseline string // Group of the runs that others are measured against
	Runs     []ComparedRun
}

// ComparedRun is one run of a comparison.
type ComparedRun struct {
	Group  string // the run's name with the values of its sweep, the same for all seeds
	Seed   int64
	Config *Config // save_folder and run_name are set
}

// compareSection is the section as it is written.
type compareSection struct {
	Seeds    []int64      `yaml:"seeds" range:"[0,inf)" doc:"every run is made once with each seed (seed and data.seed)"`
	Baseline string       `yaml:"baseline" doc:"run that the others are measured against"`
	Runs     []compareRun `yaml:"runs" doc:"the runs"`
}

type compareRun struct {
	Name  string  `yaml:"name" doc:"name of the run"`
	Seeds []int64 `yaml:"seeds" range:"[0,inf)" doc:"seeds of this run instead of the section's"`
	Set   any     `yaml:"set" doc:"keys that differ from the base, dotted or nested"`
	Sweep any     `yaml:"sweep" doc:"dotted keys with lists of values: one run for each combination"`
}

// maxComparedRuns bounds a slip in a sweep.
const maxComparedRuns = 1000

// LoadComparison reads a file with a section compare. Overrides of its own
// keys change the section, the others are applied last, to every run.
func LoadComparison(file string, overrides []string) (*Comparison, error) {
	text, err := readFile(file)
	if err != nil {
		return nil, err
	}
	return ParseComparison(file, text, overrides)
}

// ParseComparison is [LoadComparison] of a text.
func ParseComparison(name string, text []byte, overrides []string) (*Comparison, error) {
	tree, err := parse(name, text, true)
	if err != nil {
		return nil, err
	}
	if tree.kind != mapKind || tree.child("compare") == nil {
		return nil, Errors{{At: name, Key: "compare", Msg: "is not set; it lists the runs to compare"}}
	}
	own, overrides := cutCompare(overrides)
	if tree, err = (&loader{file: name}).override(tree, own); err != nil {
		return nil, err
	}
	section, err := decodeCompare(name, tree.child("compare"))
	if err != nil {
		return nil, err
	}
	c := &comparer{loader: loader{file: name}, base: tree.without("compare"), overrides: overrides}
	for _, r := range section.Runs {
		c.run(r, section.Seeds)
	}
	return c.finish(section)
}

// cutCompare parts overrides of the section itself from those of the runs.
func cutCompare(overrides []string) (section, runs []string) {
	for _, o := range overrides {
		if strings.HasPrefix(strings.TrimPrefix(o, "--"), "compare.") {
			section = append(section, o)
		} else {
			runs = append(runs, o)
		}
	}
	return section, runs
}

// decodeCompare reads the section strictly and checks it by itself.
func decodeCompare(file string, n *node) (*compareSection, error) {
	var s compareSection
	d := newDecoder(reflect.TypeFor[compareSection]())
	d.group(n, reflect.ValueOf(&s).Elem(), "")
	for i := range d.faults {
		d.faults[i].Key = join("compare", d.faults[i].Key)
	}
	fault := func(key, format string, args ...any) {
		at := cmp.Or(d.set[strings.TrimPrefix(key, "compare.")], n.at)
		d.faults = append(d.faults, Fault{at, key, fmt.Sprintf(format, args...)})
	}
	if len(s.Runs) == 0 && len(d.faults) == 0 {
		fault("compare.runs", "is not set; list at least one run")
	}
	for i, r := range s.Runs {
		key := fmt.Sprintf("compare.runs[%d]", i)
		if r.Name == "" || strings.ContainsAny(r.Name, `/\`) || strings.HasPrefix(r.Name, ".") {
			fault(key+".name", "%q is not a name for a folder", r.Name)
		}
		for name, v := range map[string]any{"set": r.Set, "sweep": r.Sweep} {
			if n, ok := v.(*node); ok && n.kind != mapKind {
				fault(key+"."+name, "is %s, must be a group of keys", n.kind)
			}
		}
	}
	if len(d.faults) > 0 {
		return nil, d.faults
	}
	return &s, nil
}

// without returns the mapping less one key.
func (n *node) without(key string) *node {
	out := *n
	out.entries = nil
	for _, e := range n.entries {
		if e.key != key {
			out.entries = append(out.entries, e)
		}
	}
	return &out
}

// comparer expands the section into runs and collects what is wrong with them.
type comparer struct {
	loader    loader
	base      *node
	overrides []string
	runs      []ComparedRun
	faults    Errors
	seen      map[string]bool
}

// setting is one key.path with its value.
type setting struct {
	path  string
	value *node
}

// settings flattens one level: keys may be dotted, values may be groups.
func settings(v any) []setting {
	n, ok := v.(*node)
	if !ok {
		return nil
	}
	out := make([]setting, len(n.entries))
	for i, e := range n.entries {
		out[i] = setting{e.key, e.value}
	}
	return out
}

// run adds the runs of one entry: every combination of its sweep, every seed.
func (c *comparer) run(r compareRun, seeds []int64) {
	if len(r.Seeds) > 0 {
		seeds = r.Seeds
	}
	for _, combination := range combinations(settings(r.Sweep)) {
		tree, group := c.base, r.Name
		for _, s := range append(settings(r.Set), combination...) {
			tree = setKey(tree, s.path, s.value)
		}
		for _, s := range combination {
			short := s.path[strings.LastIndex(s.path, ".")+1:]
			group += fmt.Sprintf("-%s=%s", short, strings.ReplaceAll(s.value.text, "/", "_"))
		}
		c.seeds(tree, group, seeds)
	}
}

// combinations is the product of the lists, the last key fastest; one empty
// combination without a sweep.
func combinations(sweep []setting) [][]setting {
	out := [][]setting{nil}
	for _, s := range sweep {
		values := s.value.list
		if s.value.kind != listKind {
			values = []*node{s.value}
		}
		var next [][]setting
		for _, before := range out {
			for _, v := range values {
				if len(next) <= maxComparedRuns {
					next = append(next, append(before[:len(before):len(before)], setting{s.path, v}))
				}
			}
		}
		out = next
	}
	return out
}

func (c *comparer) seeds(tree *node, group string, seeds []int64) {
	if len(seeds) == 0 {
		c.add(tree, group, nil)
	}
	for _, seed := range seeds {
		n := &node{kind: scalarKind, text: fmt.Sprint(seed), at: tree.at, size: 1}
		c.add(tree.with([]string{"seed"}, n).with([]string{"data", "seed"}, n), group, &seed)
	}
}

// add loads one run and gives it its folder.
func (c *comparer) add(tree *node, group string, seed *int64) {
	if len(c.runs)+len(c.faults) > maxComparedRuns {
		return
	}
	tree, err := c.loader.override(tree, c.overrides)
	if err == nil {
		var cfg *Config
		if cfg, err = c.loader.load(tree); err == nil {
			name := group
			if seed != nil {
				name = fmt.Sprintf("%s-s%d", group, *seed)
			}
			cfg.RunName, cfg.SaveFolder = name, filepath.Join(cfg.SaveFolder, name)
			c.runs = append(c.runs, ComparedRun{group, cfg.Seed, cfg})
			return
		}
	}
	c.merge(err)
}

// merge keeps each fault once: a fault of the base is one of every run.
func (c *comparer) merge(err error) {
	faults, ok := err.(Errors)
	if !ok {
		faults = Errors{{At: c.loader.file, Msg: err.Error()}}
	}
	for _, f := range faults {
		if c.seen == nil {
			c.seen = map[string]bool{}
		}
		if !c.seen[f.Error()] {
			c.seen[f.Error()] = true
			c.faults = append(c.faults, f)
		}
	}
}

func (c *comparer) finish(s *compareSection) (*Comparison, error) {
	names := map[string]bool{}
	var groups []string
	for _, r := range c.runs {
		if names[r.Config.RunName] {
			c.faults = append(c.faults, Fault{c.loader.file, "compare.runs", fmt.Sprintf("two runs are called %s", r.Config.RunName)})
		}
		if !names[r.Group] {
			groups = append(groups, r.Group)
		}
		names[r.Config.RunName], names[r.Group] = true, true
	}
	baseline := s.Baseline
	if baseline != "" && !names[baseline] && len(c.faults) == 0 {
		c.faults = append(c.faults, Fault{c.loader.file, "compare.baseline", fmt.Sprintf("%q is not one of %s%s", baseline, list(groups), didYouMean(baseline, groups))})
	}
	if len(c.runs) > maxComparedRuns {
		c.faults = append(c.faults, Fault{c.loader.file, "compare.runs", fmt.Sprintf("more than %d runs", maxComparedRuns)})
	}
	if len(c.faults) > 0 {
		return nil, c.faults
	}
	if baseline == "" {
		baseline = c.runs[0].Group
	}
	return &Comparison{Folder: filepath.Dir(c.runs[0].Config.SaveFolder), Baseline: baseline, Runs: c.runs}, nil
}
