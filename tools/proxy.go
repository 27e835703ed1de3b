package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	modpath "golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// writeProxy writes every module in the layout of the module proxy protocol.
func writeProxy(r *repo, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: tools proxy DIR")
	}
	return r.proxy(args[0])
}

func (r *repo) proxy(dir string) error {
	for _, m := range r.mods {
		if err := r.proxyModule(dir, m); err != nil {
			return fmt.Errorf("proxy %s: %w", m.dir, err)
		}
	}
	return nil
}

func (r *repo) proxyModule(dir string, m module) error {
	v := filepath.Join(dir, filepath.FromSlash(m.path), "@v")
	if err := os.MkdirAll(v, 0o755); err != nil {
		return err
	}
	src := filepath.Join(r.root, m.dir)
	mod, err := os.ReadFile(filepath.Join(src, "go.mod"))
	if err != nil {
		return err
	}
	// A fixed time: the proxy's bytes depend on the sources alone.
	info := fmt.Sprintf(`{"Version":%q,"Time":%q}`, version, time.Unix(0, 0).UTC().Format(time.RFC3339))
	for name, data := range map[string][]byte{
		"list": []byte(version + "\n"), version + ".info": []byte(info), version + ".mod": mod,
	} {
		if err := os.WriteFile(filepath.Join(v, name), data, 0o644); err != nil {
			return err
		}
	}
	f, err := os.Create(filepath.Join(v, version+".zip"))
	if err != nil {
		return err
	}
	if err := zip.CreateFromDir(f, modpath.Version{Path: m.path, Version: version}, src); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// outside is an environment in which go sees the modules only through a proxy
// built from the working tree, with a module cache of its own.
type outside struct {
	dir string
	env []string
}

// newOutside builds the proxy in a scratch folder. What the machine's own module
// cache already holds is served from there, so nothing is fetched twice.
func (r *repo) newOutside() (*outside, error) {
	dir, err := os.MkdirTemp("", "asteria-outside-")
	if err != nil {
		return nil, err
	}
	o := &outside{dir: dir}
	proxy := filepath.Join(dir, "proxy")
	if err := r.proxy(proxy); err != nil {
		o.close()
		return nil, err
	}
	have, err := r.output(r.root, nil, "go", "env", "GOMODCACHE", "GOPROXY")
	if err != nil {
		o.close()
		return nil, err
	}
	cache, upstream, _ := strings.Cut(strings.TrimSpace(have), "\n")
	o.env = []string{
		"GOWORK=off", "CGO_ENABLED=0", "GOFLAGS=-mod=mod -modcacherw",
		"GOMODCACHE=" + filepath.Join(dir, "modcache"),
		"GONOSUMDB=" + r.prefix + "/*",
		"GOPROXY=file://" + proxy + ",file://" + filepath.Join(cache, "cache", "download") + "," + upstream,
	}
	return o, nil
}

func (o *outside) close() { os.RemoveAll(o.dir) }

// output runs a command and returns what it printed; on failure the error holds
// everything the command said.
func (r *repo) output(dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, out, errs.String())
	}
	return string(out), nil
}
