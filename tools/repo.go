package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// version is what the siblings require of each other until the next release;
// go.work replaces exactly this version.
const version = "v0.1.0"

// untagged are nested modules that serve the repository and are never released.
var untagged = []string{"tools", "bench"}

// repo is the working tree.
type repo struct {
	root   string
	prefix string // module path before the directory, such as github.com/x/asteria
	mods   []module
}

// module is one released module.
type module struct {
	dir  string   // relative to the root, slash-separated
	path string   // import path
	deps []string // import paths of the siblings it requires
}

// openRepo finds the root above the current directory and reads every go.mod.
func openRepo() (*repo, error) {
	root, err := findRoot()
	if err != nil {
		return nil, err
	}
	r := &repo{root: root}
	files, err := filepath.Glob(filepath.Join(root, "*", "go.mod"))
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if err := r.add(f); err != nil {
			return nil, err
		}
	}
	r.sortByDependency()
	return r, nil
}

func findRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			if _, err := os.Stat(filepath.Join(dir, "tools", "go.mod")); err == nil {
				return dir, nil
			}
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no go.work with a tools module above the current directory")
		}
		dir = up
	}
}

func (r *repo) add(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	mf, err := modfile.Parse(file, data, nil)
	if err != nil {
		return err
	}
	dir := filepath.Base(filepath.Dir(file))
	path := mf.Module.Mod.Path
	r.prefix = strings.TrimSuffix(path, "/"+dir)
	if slices.Contains(untagged, dir) {
		return nil
	}
	if len(mf.Replace) > 0 {
		return fmt.Errorf("%s: replace is not allowed: go install path@version refuses it", file)
	}
	m := module{dir: dir, path: path}
	for _, q := range mf.Require {
		if strings.HasPrefix(q.Mod.Path, r.prefix+"/") {
			m.deps = append(m.deps, q.Mod.Path)
		}
	}
	r.mods = append(r.mods, m)
	return nil
}

// sortByDependency puts what is required before what requires it; ties by name.
func (r *repo) sortByDependency() {
	var out []module
	done := map[string]bool{}
	for len(out) < len(r.mods) {
		n := len(out)
		for _, m := range r.mods {
			ready := !done[m.path] && !slices.ContainsFunc(m.deps, func(d string) bool { return !done[d] })
			if ready {
				out, done[m.path] = append(out, m), true
			}
		}
		if len(out) == n {
			return // a cycle: keep the order of the directory, go itself will complain
		}
	}
	r.mods = out
}

func printModules(r *repo, _ []string) error {
	for _, m := range r.mods {
		fmt.Println(m.dir)
	}
	return nil
}
