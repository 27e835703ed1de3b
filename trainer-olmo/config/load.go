package config

import (
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
)

// Load reads a YAML file and applies overrides of the form key.path=value, in
// order, after it. A leading "--" of an override is ignored. The result is
// resolved (every default written out) and valid; otherwise the error is
// [Errors], or that of the file system.
func Load(file string, overrides []string) (*Config, error) {
	text, err := readFile(file)
	if err != nil {
		return nil, err
	}
	return Parse(file, text, overrides)
}

// readFile reads at most one byte more than is allowed, so that a huge or
// endless file costs no memory.
func readFile(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("config: read %s: %w", file, err)
	}
	return text, nil
}

// Parse is [Load] of a text; name stands for the file in errors.
func Parse(name string, text []byte, overrides []string) (*Config, error) {
	tree, err := parse(name, text, true)
	if err != nil {
		return nil, err
	}
	l := &loader{file: name}
	tree, err = l.override(tree, overrides)
	if err != nil {
		return nil, err
	}
	return l.load(tree)
}

// loader carries one configuration through its stages.
type loader struct {
	file    string
	notices []string
}

// override applies key.path=value texts to the tree.
func (l *loader) override(tree *node, overrides []string) (*node, error) {
	var faults Errors
	for _, o := range overrides {
		at := fmt.Sprintf("override %q", o)
		path, text, ok := strings.Cut(strings.TrimPrefix(o, "--"), "=")
		if !ok || strings.TrimSpace(path) == "" || strings.Contains("."+path+".", "..") {
			faults = append(faults, Fault{At: at, Msg: "must be key.path=value, such as train.steps=100"})
			continue
		}
		value, err := parseValue(at, text)
		if err != nil {
			faults = append(faults, err.(Errors)...)
			continue
		}
		if tree.kind == mapKind {
			tree = setKey(tree, path, value)
		}
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return tree, nil
}

// parseValue reads the value of an override as YAML. An empty value is the
// empty text, not an empty document.
func parseValue(at, text string) (*node, error) {
	if strings.TrimSpace(text) == "" {
		return &node{kind: scalarKind, at: at, size: 1}, nil
	}
	n, err := parse(at, []byte(text), false)
	if err != nil {
		return nil, err
	}
	if n.kind == mapKind && len(n.entries) == 0 {
		return &node{at: at, size: 1}, nil
	}
	return n, nil
}

// rivals are keys of which one may be set. An override of one silently takes
// the place of another that the file sets.
var rivals = [][]string{
	{"train.steps", "train.tokens", "train.epochs"},
	{"data.corpus", "data.paths"},
}

// setKey sets one key; a value that says something clears the key's rivals.
func setKey(tree *node, path string, value *node) *node {
	if !value.empty() {
		tree = clearRivals(tree, path)
	}
	return tree.with(strings.Split(path, "."), value)
}

func clearRivals(tree *node, path string) *node {
	for _, set := range rivals {
		for _, chosen := range set {
			if chosen != path {
				continue
			}
			for _, other := range set {
				if other != path && tree.path(other) != nil {
					tree = tree.with(strings.Split(other, "."), &node{at: tree.at, size: 1})
				}
			}
		}
	}
	return tree
}

// load decodes, translates and validates.
func (l *loader) load(tree *node) (*Config, error) {
	if tree.kind != mapKind {
		return nil, Errors{{At: l.file, Msg: fmt.Sprintf("is %s, must be a group of keys", tree.kind)}}
	}
	if section := tree.child("compare"); section != nil {
		if _, err := decodeCompare(l.file, section); err != nil {
			return nil, err
		}
		tree = tree.without("compare") // for the command compare only
	}
	if isLegacy(tree) {
		return l.loadLegacy(tree)
	}
	c := Default()
	d := newDecoder(reflect.TypeFor[Config]())
	l.decodePreset(d, tree, &c)
	d.group(tree, reflect.ValueOf(&c).Elem(), "")
	return l.finish(d, &c)
}

// finish resolves and validates what was decoded. Cross-checks run only on
// values that are sound by themselves.
func (l *loader) finish(d *decoder, c *Config) (*Config, error) {
	if len(d.faults) > 0 {
		return nil, d.faults
	}
	c.resolve()
	v := &validator{file: l.file, set: d.set}
	v.config(c)
	if len(v.faults) > 0 {
		return nil, v.faults
	}
	c.Notices = append(l.notices, c.notices(d.set)...)
	return c, nil
}
