package main

import (
	"archive/zip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// newRepo lays out a tiny workspace of two modules, b requiring a.
func newRepo(t *testing.T) *repo {
	t.Helper()
	root := t.TempDir()
	files := map[string]string{
		"go.work":      "go 1.25.0\n",
		"tools/go.mod": "module example.com/p/tools\n",
		"a/go.mod":     "module example.com/p/a\n\ngo 1.25.0\n",
		"a/doc.go":     "// Package a is small.\npackage a\n",
		"b/go.mod":     "module example.com/p/b\n\ngo 1.25.0\n\nrequire example.com/p/a v0.1.0\n",
		"b/doc.go":     "// Package b uses a.\npackage b\n\nimport _ \"example.com/p/a\"\n",
	}
	for name, text := range files {
		file := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(root)
	r, err := openRepo()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.output(root, nil, "git", "init", "-q"); err != nil {
		t.Skipf("git: %v", err)
	}
	return r
}

func TestModulesComeInDependencyOrderWithoutTheUntaggedOnes(t *testing.T) {
	r := newRepo(t)
	var got []string
	for _, m := range r.mods {
		got = append(got, m.dir)
	}
	if strings.Join(got, " ") != "a b" || r.prefix != "example.com/p" {
		t.Fatalf("modules %v, prefix %q", got, r.prefix)
	}
}

func TestWorkFileIsCheckedAndWritten(t *testing.T) {
	r := newRepo(t)
	if err := writeWork(r, []string{"-check"}); err == nil {
		t.Fatal("an out-of-date go.work passed the check")
	}
	if err := writeWork(r, nil); err != nil {
		t.Fatal(err)
	}
	if err := writeWork(r, []string{"-check"}); err != nil {
		t.Fatal(err)
	}
	data, _ := os.ReadFile("go.work")
	if !strings.Contains(string(data), "replace (\n\texample.com/p/a v0.1.0 => ./a\n") {
		t.Fatalf("go.work has no versioned replace:\n%s", data)
	}
}

func TestReplaceInAModuleIsRefused(t *testing.T) {
	r := newRepo(t)
	file := filepath.Join(r.root, "b", "go.mod")
	data, _ := os.ReadFile(file)
	data = append(data, "\nreplace example.com/p/a => ../a\n"...)
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := openRepo(); err == nil || !strings.Contains(err.Error(), "replace") {
		t.Fatalf("err = %v, want a refusal of replace", err)
	}
}

func TestPrefixIsRewrittenInEveryFile(t *testing.T) {
	r := newRepo(t)
	if err := rewritePrefix(r, []string{"example.org/new"}); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"a/go.mod", "b/go.mod", "b/doc.go"} {
		data, _ := os.ReadFile(f)
		if strings.Contains(string(data), "example.com/p") || !strings.Contains(string(data), "example.org/new") && f != "a/doc.go" {
			t.Errorf("%s:\n%s", f, data)
		}
	}
	if err := rewritePrefix(r, nil); err == nil {
		t.Error("no prefix was accepted")
	}
}

func TestProxyHoldsEveryModuleInTheProtocolsLayout(t *testing.T) {
	r := newRepo(t)
	dir := t.TempDir()
	if err := r.proxy(dir); err != nil {
		t.Fatal(err)
	}
	z, err := zip.OpenReader(filepath.Join(dir, "example.com/p/b/@v/v0.1.0.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	found := false
	for _, f := range z.File {
		found = found || f.Name == "example.com/p/b@v0.1.0/doc.go"
	}
	if !found {
		t.Error("the zip lacks doc.go under the module's path and version")
	}
}

func TestAConsumerOfTheProxyBuilds(t *testing.T) {
	r := newRepo(t)
	o, err := r.newOutside()
	if err != nil {
		t.Fatal(err)
	}
	defer o.close()
	for _, m := range r.mods {
		if _, err := r.consume(o, m); err != nil {
			t.Errorf("%s: %v", m.dir, err)
		}
	}
}

func TestLintReportsWhatTheHouseForbids(t *testing.T) {
	r := newRepo(t)
	long := "package a\n\nfunc Long() {\n" + strings.Repeat("\tprintln()\n", longFunction) + "}\n"
	path := "package a\n\nconst where = \"/ho" + "me/somebody/file\"\n"
	for name, text := range map[string]string{"a/long.go": long, "a/path.go": path, "b/two.go": "// Package b again.\npackage b\n"} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	err := lint(r, nil)
	if err == nil {
		t.Fatal("nothing was reported")
	}
	for _, want := range []string{
		"a: no README.md", "a/long.go:3: Long has 72 lines", "exported Long has no comment",
		"a/path.go: names a path of one machine", "b: 2 package comments",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("lint does not say %q:\n%v", want, err)
		}
	}
}
