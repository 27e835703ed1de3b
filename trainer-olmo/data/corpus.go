package data

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/asteria-runtime/asteria/trainer-olmo/tokenizer"
)

// The built-in corpus: its default size in bytes and the seed by which its files
// are ordered, so that any part of it is a sample of the whole tree.
const (
	corpusBytes = 20_000_000
	corpusSeed  = 1234
)

// goRootTokens returns the token file of the corpus goroot: the .go files under
// GOROOT/src, sorted by path, shuffled, the first of them that fit MaxBytes, as
// bytes with EOS after each.
func (c Config) goRootTokens() ([]string, error) {
	root, err := c.findGoRoot()
	if err != nil {
		return nil, err
	}
	src := filepath.Join(root, "src")
	files, err := textFilesUnder(src, func(path string) bool { return strings.HasSuffix(path, ".go") })
	if err != nil {
		return nil, err
	}
	files, err = c.choose(files)
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("data: no Go source under %s that fits data.max_bytes = %d", src, c.MaxBytes)
	}
	return c.prepared(CorpusGoRoot, files, tokenizer.Byte(), src)
}

// choose shuffles files and takes them while they fit.
func (c Config) choose(files []string) ([]string, error) {
	limit := orDefault(c.MaxBytes, corpusBytes)
	order := make([]uint32, len(files))
	for i := range order {
		order[i] = uint32(i)
	}
	Shuffle(order, corpusSeed)
	var chosen []string
	total := int64(0)
	for _, i := range order {
		size, err := fileSize(files[i])
		if err != nil {
			return nil, err
		}
		if limit > 0 && total+size > limit {
			break
		}
		total += size
		chosen = append(chosen, files[i])
	}
	return chosen, nil
}

// findGoRoot is GoRoot, or what the go command answers.
func (c Config) findGoRoot() (string, error) {
	if c.GoRoot != "" {
		return c.GoRoot, checkGoRoot(c.GoRoot)
	}
	const advice = "install Go, set data.go_root to an unpacked Go tree, or give text with data.paths"
	command, err := exec.LookPath("go")
	if err != nil {
		return "", fmt.Errorf("data: data.corpus goroot needs a Go toolchain, and there is no go command (%w); %s", err, advice)
	}
	out, err := exec.Command(command, "env", "GOROOT").Output()
	root := strings.TrimSpace(string(out))
	if err != nil || root == "" {
		return "", fmt.Errorf("data: data.corpus goroot: %s env GOROOT failed (%w); %s", command, errors.Join(err, errors.New("no answer")), advice)
	}
	return root, checkGoRoot(root)
}

// checkGoRoot looks for a package that every Go tree has, so that a mistyped
// folder is told from a tree without sources.
func checkGoRoot(root string) error {
	if info, err := os.Stat(filepath.Join(root, "src", "fmt")); err != nil || !info.IsDir() {
		return fmt.Errorf("data: %s is not the root of a Go tree: it has no src/fmt", root)
	}
	return nil
}
