package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// longFunction is the limit of the house style. Straight-line kernels and tables
// may exceed it with this marker on a line of its own in their comment.
const (
	longFunction = 70
	allowLong    = "//lint:long"
)

// machinePath matches absolute paths that only exist on somebody's machine.
var machinePath = regexp.MustCompile(`(^|[^\w.])/(home|Users|root|work|tmp/\w)[\w/.-]*`)

// lint checks the rules of the house that go vet does not know.
func lint(r *repo, _ []string) error {
	var errs []error
	for _, m := range r.mods {
		for _, name := range []string{"README.md", "CHANGELOG.md", "go.mod", "doc.go"} {
			if name == "doc.go" && m.dir == "trainer-olmo" {
				continue // a module of packages, none at its root
			}
			if _, err := os.Stat(filepath.Join(r.root, m.dir, name)); err != nil {
				errs = append(errs, fmt.Errorf("%s: no %s", m.dir, name))
			}
		}
	}
	files, err := r.tracked()
	if err != nil {
		return err
	}
	docs := map[string]int{} // package folder -> number of package comments
	for _, f := range files {
		errs = append(errs, r.lintFile(f, docs)...)
	}
	for dir, n := range docs {
		if n != 1 {
			errs = append(errs, fmt.Errorf("%s: %d package comments, want exactly 1", dir, n))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

func (r *repo) lintFile(f string, docs map[string]int) []error {
	if filepath.Ext(f) != ".go" {
		return nil
	}
	data, err := os.ReadFile(filepath.Join(r.root, f))
	if err != nil {
		return []error{err}
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, f, data, parser.ParseComments)
	if err != nil {
		return []error{err}
	}
	var errs []error
	if p := machinePath.Find(data); p != nil && !strings.HasPrefix(f, "tools/") {
		errs = append(errs, fmt.Errorf("%s: names a path of one machine: %s", f, p))
	}
	if strings.HasSuffix(f, "_test.go") {
		return errs
	}
	countPackageComment(f, file, docs)
	if strings.Contains(string(data), "DO NOT EDIT") {
		return errs
	}
	return append(errs, lintFunctions(fset, file)...)
}

func countPackageComment(f string, file *ast.File, docs map[string]int) {
	dir := filepath.ToSlash(filepath.Dir(f))
	docs[dir] += 0
	if file.Doc != nil && strings.TrimSpace(file.Doc.Text()) != "" {
		docs[dir]++
	}
}

// lintFunctions reports functions over the limit and exported ones without a comment.
func lintFunctions(fset *token.FileSet, file *ast.File) []error {
	var errs []error
	for _, d := range file.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		pos := fset.Position(fn.Pos())
		lines := fset.Position(fn.End()).Line - pos.Line + 1
		if lines > longFunction && !allowedLong(fn.Doc) {
			errs = append(errs, fmt.Errorf("%s:%d: %s has %d lines, the limit is %d", pos.Filename, pos.Line, fn.Name.Name, lines, longFunction))
		}
		if fn.Name.IsExported() && fn.Doc == nil && file.Name.Name != "main" && fn.Recv == nil {
			errs = append(errs, fmt.Errorf("%s:%d: exported %s has no comment", pos.Filename, pos.Line, fn.Name.Name))
		}
	}
	return errs
}

func allowedLong(doc *ast.CommentGroup) bool {
	return doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool {
		return strings.HasPrefix(c.Text, allowLong)
	})
}
