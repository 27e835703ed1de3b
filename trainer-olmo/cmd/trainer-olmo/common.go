package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/trainer-olmo/checkpoint"
	"github.com/asteria-runtime/asteria/trainer-olmo/checkpoint/safetensors"
	"github.com/asteria-runtime/asteria/trainer-olmo/config"
	"github.com/asteria-runtime/asteria/trainer-olmo/model"
)

// load reads a configuration. A file that is not there is a mistake on the
// command line.
func load(file string, set []string) (*config.Config, error) {
	c, err := config.Load(file, set)
	return c, notFound(err)
}

// notFound turns a missing file into a usage error.
func notFound(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) && (errors.Is(err, fs.ErrNotExist) || isFolder(path.Path)) {
		return usagef("%s: %v", path.Path, path.Err)
	}
	return err
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

// tellNotices writes the configuration's notices once.
func tellNotices(w io.Writer, c *config.Config) {
	for _, n := range c.Notices {
		fmt.Fprintf(w, "note: %s\n", n)
	}
}

// setProcs gives the scheduler room for the computing threads, the refresh
// workers, and two more for everything else.
func setProcs(threads, workers int) {
	runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), threads+workers+2))
}

// isTerminal reports whether progress may rewrite a line.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// configOf finds the configuration that belongs to a path: the file itself, or
// the config.yaml of a run folder or checkpoint. It is "" for other folders.
func configOf(path string) string {
	if !isFolder(path) {
		return path
	}
	if file := filepath.Join(path, "config.yaml"); exists(file) {
		return file
	}
	if c, err := checkpoint.Load(path); err == nil {
		if file := filepath.Join(c.Path(), "config.yaml"); exists(file) {
			return file
		}
	}
	return ""
}

// isModel reports whether a folder is in Hugging Face's form and no checkpoint.
func isModel(path string) bool {
	return exists(filepath.Join(path, "config.json")) && !exists(filepath.Join(path, "metadata.json"))
}

// openModel reads weights from a run folder, a checkpoint or a folder in Hugging
// Face's form. The caller closes the model.
func openModel(path string, eng *gemm.Engine) (*model.Model[float32], error) {
	if !exists(path) {
		return nil, usagef("%s: no such file or directory", path)
	}
	if isModel(path) {
		return safetensors.Import[float32](path, eng)
	}
	ck, err := checkpoint.Load(path)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(ck.Path(), "config.yaml")
	if !exists(file) {
		return safetensors.Import[float32](ck.Path(), eng)
	}
	c, err := config.Load(file, nil)
	if err != nil {
		return nil, err
	}
	m, err := model.New[float32](c.ModelConfig(), eng)
	if err != nil {
		return nil, err
	}
	if err := ck.Weights(checkpoint.Weights(m.Params())); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}
