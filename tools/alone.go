package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// aloneAll builds and vets a copy of each module with no workspace around it:
// the only proof that a team can take one module.
func aloneAll(r *repo, _ []string) error {
	o, err := r.newOutside()
	if err != nil {
		return err
	}
	defer o.close()
	var errs []error
	for _, m := range r.mods {
		dir, err := r.scratch(o, m)
		if err == nil {
			err = r.alone(o, dir)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s alone: %w", m.dir, err))
			continue
		}
		fmt.Printf("alone\t%s\tok\n", m.path)
	}
	return errors.Join(errs...)
}

func (r *repo) alone(o *outside, dir string) error {
	for _, args := range [][]string{{"build", "./..."}, {"vet", "./..."}} {
		if _, err := r.output(dir, o.env, "go", args...); err != nil {
			return err
		}
	}
	return nil
}

// scratch copies a module to a folder outside the repository.
func (r *repo) scratch(o *outside, m module) (string, error) {
	dir := filepath.Join(o.dir, "copy", m.dir)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	return dir, os.CopyFS(dir, os.DirFS(filepath.Join(r.root, m.dir)))
}

// tidyAll tidies each module on a scratch copy against the proxy and strips the
// siblings' lines from go.sum: their hashes change with every edit until a release.
func tidyAll(r *repo, args []string) error {
	check := slices.Contains(args, "-check")
	only := slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "-check" })
	o, err := r.newOutside()
	if err != nil {
		return err
	}
	defer o.close()
	var errs []error
	for _, m := range r.mods {
		if !slices.Contains(only, m.dir) && len(only) > 0 {
			continue
		}
		if err := r.tidy(o, m, check); err != nil {
			errs = append(errs, fmt.Errorf("tidy %s: %w", m.dir, err))
		}
	}
	return errors.Join(errs...)
}

func (r *repo) tidy(o *outside, m module, check bool) error {
	dir, err := r.scratch(o, m)
	if err != nil {
		return err
	}
	if _, err := r.output(dir, o.env, "go", "mod", "tidy"); err != nil {
		return err
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		if err := r.takeBack(filepath.Join(dir, name), filepath.Join(r.root, m.dir, name), check); err != nil {
			return err
		}
	}
	return nil
}

// takeBack copies a tidied file into the tree, or compares it.
func (r *repo) takeBack(from, to string, check bool) error {
	data, err := os.ReadFile(from)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	want := string(data)
	if filepath.Base(to) == "go.sum" {
		want = r.withoutSiblings(want)
	}
	have, err := os.ReadFile(to)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	switch {
	case string(have) == want:
		return nil
	case check:
		return fmt.Errorf("%s is not tidy: run make tidy", to)
	}
	return os.WriteFile(to, []byte(want), 0o644)
}

func (r *repo) withoutSiblings(sum string) string {
	var b strings.Builder
	for line := range strings.Lines(sum) {
		if !strings.HasPrefix(line, r.prefix+"/") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// consumeAll does what a new user does: an empty module, go get of one module,
// a build of all its packages, and the size of what came along.
func consumeAll(r *repo, _ []string) error {
	o, err := r.newOutside()
	if err != nil {
		return err
	}
	defer o.close()
	var errs []error
	for _, m := range r.mods {
		n, err := r.consume(o, m)
		if err != nil {
			errs = append(errs, fmt.Errorf("consumer of %s: %w", m.dir, err))
			continue
		}
		fmt.Printf("consumer\t%s\tok\t%d modules in its build\n", m.path, n)
	}
	return errors.Join(errs...)
}

func (r *repo) consume(o *outside, m module) (int, error) {
	dir := filepath.Join(o.dir, "consumer", m.dir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, err
	}
	mod := "module example.com/consumer\n\ngo 1.25.0\n"
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o644); err != nil {
		return 0, err
	}
	for _, args := range [][]string{{"get", m.path + "@" + version}, {"build", m.path + "/..."}} {
		if _, err := r.output(dir, o.env, "go", args...); err != nil {
			return 0, err
		}
	}
	return r.buildModules(o, dir, m)
}

// buildModules counts the distinct modules that m's packages are built from.
func (r *repo) buildModules(o *outside, dir string, m module) (int, error) {
	out, err := r.output(dir, o.env, "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", m.path+"/...")
	if err != nil {
		return 0, err
	}
	lines := strings.Fields(out)
	slices.Sort(lines)
	return len(slices.Compact(lines)), nil
}
