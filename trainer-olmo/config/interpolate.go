package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
)

// Limits on ${…}: references to references multiply like aliases do.
const (
	maxReferences     = 10000
	maxReferenceDepth = 32
	maxReferenceBytes = 64 << 10
)

// interpolator resolves OmegaConf's ${…} in the values of a legacy file:
// ${key.path}, ${oc.env:NAME,default}, ${path.choose:a,b}, ${path.glob:pattern}
// and ${path.last_checkpoint:folder}. No network is touched: a URL counts as
// existing.
type interpolator struct {
	root      *node
	defaults  reflect.Value // of keys that the file leaves out
	lookupEnv func(string) (string, bool)
	used      int
	depth     int
	missing   []string // path.choose without an existing path, by position
}

// tree returns n with every reference replaced.
func (p *interpolator) tree(n *node) (*node, error) {
	switch n.kind {
	case scalarKind:
		return p.scalar(n)
	case listKind:
		out := *n
		out.list = make([]*node, len(n.list))
		for i, item := range n.list {
			r, err := p.tree(item)
			if err != nil {
				return nil, err
			}
			out.list[i] = r
		}
		return flatten(&out), nil
	case mapKind:
		out := *n
		out.entries = make([]entry, len(n.entries))
		for i, e := range n.entries {
			r, err := p.tree(e.value)
			if err != nil {
				return nil, err
			}
			out.entries[i] = entry{e.key, e.at, r}
		}
		return &out, nil
	}
	return n, nil
}

// flatten splices a list that a glob produced into the list that holds it.
func flatten(n *node) *node {
	var items []*node
	for _, item := range n.list {
		if item.kind == listKind && item.text == "glob" {
			items = append(items, item.list...)
		} else {
			items = append(items, item)
		}
	}
	n.list = items
	return n
}

// scalar resolves one value. A value that is one reference and nothing else
// takes the node referred to, whatever its kind.
func (p *interpolator) scalar(n *node) (*node, error) {
	if !strings.Contains(n.text, "${") {
		return n, nil
	}
	fail := func(format string, args ...any) (*node, error) {
		return nil, Errors{{At: n.at, Msg: fmt.Sprintf(format, args...)}}
	}
	if p.used++; p.used > maxReferences || p.depth >= maxReferenceDepth {
		return fail("${…}: too many references, or a circle of them")
	}
	p.depth++
	defer func() { p.depth-- }()
	var text strings.Builder
	for rest := n.text; rest != ""; {
		before, after, found := strings.Cut(rest, "${")
		text.WriteString(before)
		if !found {
			break
		}
		end := closing(after)
		if end < 0 {
			return fail("${ without }")
		}
		value, err := p.reference(n, after[:end])
		if err != nil {
			return nil, err
		}
		if before == "" && end == len(after)-1 && text.Len() == 0 {
			return value, nil
		}
		if value.kind == listKind || value.kind == mapKind {
			return fail("${%s} is %s and cannot be part of a text", after[:end], value.kind)
		}
		text.WriteString(value.text)
		if text.Len() > maxReferenceBytes {
			return fail("${…}: longer than %d bytes", maxReferenceBytes)
		}
		rest = after[end+1:]
	}
	return &node{kind: scalarKind, text: text.String(), at: n.at, size: 1}, nil
}

// closing is the index of the brace that closes a reference, -1 without one.
func closing(s string) int {
	depth := 0
	for i := range len(s) {
		switch {
		case s[i] == '}' && depth == 0:
			return i
		case s[i] == '}':
			depth--
		case s[i] == '{':
			depth++
		}
	}
	return -1
}

// reference resolves what stands between ${ and }.
func (p *interpolator) reference(n *node, ref string) (*node, error) {
	name, args, call := strings.Cut(ref, ":")
	if !call {
		return p.key(n, strings.TrimSpace(ref))
	}
	parts := splitArgs(args)
	for i, arg := range parts {
		r, err := p.scalar(&node{kind: scalarKind, text: strings.TrimSpace(arg), at: n.at})
		if err != nil {
			return nil, err
		}
		parts[i] = r.text
	}
	switch name {
	case "oc.env":
		return p.env(n, parts)
	case "path.choose":
		return p.choose(n, parts), nil
	case "path.glob":
		return glob(n, parts)
	case "path.last_checkpoint":
		return p.lastCheckpoint(n, parts[0])
	}
	known := []string{"oc.env", "path.choose", "path.glob", "path.last_checkpoint"}
	return nil, Errors{{At: n.at, Msg: fmt.Sprintf("${%s:…} is not one of %s%s", name, list(known), didYouMean(name, known))}}
}

// splitArgs splits at commas outside nested references.
func splitArgs(s string) []string {
	var args []string
	depth, start := 0, 0
	for i := range len(s) {
		switch s[i] {
		case '{':
			depth++
		case '}':
			depth--
		case ',':
			if depth == 0 {
				args, start = append(args, s[start:i]), i+1
			}
		}
	}
	return append(args, s[start:])
}

func text(n *node, s string) *node {
	return &node{kind: scalarKind, text: s, at: n.at, size: 1}
}

// key looks a key up in the file, then in the defaults.
func (p *interpolator) key(n *node, path string) (*node, error) {
	if found := p.root.path(path); found != nil {
		return p.tree(found)
	}
	v := p.defaults
	for name := range strings.SplitSeq(path, ".") {
		if v.Kind() != reflect.Struct {
			break
		}
		v = fieldByKey(v, name)
		if !v.IsValid() {
			return nil, Errors{{At: n.at, Msg: fmt.Sprintf("${%s} names no key", path)}}
		}
	}
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.String:
		return text(n, v.String()), nil
	case reflect.Int, reflect.Int64, reflect.Float64, reflect.Bool:
		return text(n, format(v)), nil
	}
	return &node{at: n.at, size: 1}, nil
}

// fieldByKey is the field of v with a YAML key, the zero Value without one.
func fieldByKey(v reflect.Value, key string) reflect.Value {
	for i := range v.NumField() {
		if v.Type().Field(i).Tag.Get("yaml") == key {
			return v.Field(i)
		}
	}
	return reflect.Value{}
}

func (p *interpolator) env(n *node, args []string) (*node, error) {
	if value, ok := p.lookupEnv(args[0]); ok {
		return text(n, value), nil
	}
	if len(args) > 1 {
		if args[1] == "null" {
			return &node{at: n.at, size: 1}, nil
		}
		return text(n, args[1]), nil
	}
	return nil, Errors{{At: n.at, Msg: fmt.Sprintf("${oc.env:%s}: the environment has no such variable and no default is given", args[0])}}
}

// choose takes the first path that exists, as the legacy trainer does. Without
// one it takes the last and remembers that: `plan` must work on a machine that
// has none of the data.
func (p *interpolator) choose(n *node, paths []string) *node {
	for _, path := range paths {
		if isURL(path) || exists(path) {
			return text(n, path)
		}
	}
	p.missing = append(p.missing, fmt.Sprintf("%s: none of %s exists; %s is used", n.at, list(paths), paths[len(paths)-1]))
	return text(n, paths[len(paths)-1])
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

func isURL(path string) bool { return strings.Contains(path, "://") }

// glob lists the files of one or several patterns, sorted within each.
func glob(n *node, patterns []string) (*node, error) {
	out := &node{kind: listKind, text: "glob", at: n.at, size: 1}
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			return nil, Errors{{At: n.at, Msg: fmt.Sprintf("${path.glob:%s} matches no file", pattern)}}
		}
		for _, f := range files {
			out.list = append(out.list, text(n, f))
		}
	}
	return out, nil
}

// lastCheckpoint is the folder step{N} or step{N}-unsharded with the largest N.
func (p *interpolator) lastCheckpoint(n *node, folder string) (*node, error) {
	entries, _ := os.ReadDir(folder)
	best, bestStep := "", -1
	for _, e := range entries {
		digits, ok := strings.CutPrefix(strings.TrimSuffix(e.Name(), "-unsharded"), "step")
		if step, err := strconv.Atoi(digits); ok && err == nil && step > bestStep {
			best, bestStep = e.Name(), step
		}
	}
	if best == "" {
		return nil, Errors{{At: n.at, Msg: fmt.Sprintf("${path.last_checkpoint:%s}: no checkpoint there", folder)}}
	}
	return text(n, filepath.Join(folder, best)), nil
}
