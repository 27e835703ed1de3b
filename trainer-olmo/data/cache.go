package data

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/asteria-runtime/asteria/trainer-olmo/tokenizer"
)

// cacheVersion changes when the same inputs would give other token files.
const cacheVersion = 1

// cacheFolder is where prepared data lie.
func (c Config) cacheFolder() (string, error) {
	if c.CacheFolder != "" {
		return c.CacheFolder, nil
	}
	user, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("data: no user cache folder (%w); set data.cache_folder", err)
	}
	return filepath.Join(user, "asteria"), nil
}

// textTokens returns token files for text files, from the cache when it has
// them. What it has is known by the text itself and the tokenizer, so that a
// changed file is tokenized again.
func (c Config) textTokens(paths []string, tok tokenizer.Tokenizer) ([]string, error) {
	return c.prepared("text", paths, tok, "")
}

// prepared tokenizes files into a folder of the cache named by their content.
// Several processes may do so at once: each writes a folder of its own, and the
// first rename wins. Folders are never changed after that, so that a run may rely
// on one while others come and go; removing old ones is left to the user.
func (c Config) prepared(kind string, files []string, tok tokenizer.Tokenizer, base string) ([]string, error) {
	root, err := c.cacheFolder()
	if err != nil {
		return nil, err
	}
	o := TokenizeOptions{Inputs: files, Tokenizer: tok, BaseDir: base}
	key, err := o.cacheKey()
	if err != nil {
		return nil, err
	}
	folder := filepath.Join(root, kind+"-"+key)
	if _, err := os.Stat(folder); errors.Is(err, os.ErrNotExist) {
		if err := o.prepare(root, folder); err != nil {
			return nil, err
		}
	}
	paths, err := filepath.Glob(filepath.Join(folder, "*.npy"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("data: the cache folder %s holds no token file; remove it", folder)
	}
	return paths, nil
}

// cacheKey names what prepare would write: the rules of this package, the
// tokenizer's mapping, and each file's shown name, size and content. Reading all
// text at every start costs about a second a gigabyte; a time stamp would be
// cheaper and wrong after a checkout or a copy.
func (o TokenizeOptions) cacheKey() (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "asteria cache %d\n%s\n", cacheVersion, o.Tokenizer.Hash())
	for _, path := range o.Inputs {
		size, err := fileSize(path)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%q %d\n", o.shown(path), size)
		if err := hashFile(h, path); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil))[:20], nil
}

// prepare tokenizes next to folder and renames.
func (o TokenizeOptions) prepare(root, folder string) error {
	if err := os.MkdirAll(root, 0o777); err != nil {
		return fmt.Errorf("data: %w", err)
	}
	temp, err := os.MkdirTemp(root, ".prepare-")
	if err != nil {
		return fmt.Errorf("data: %w", err)
	}
	defer os.RemoveAll(temp) // gone after the rename
	o.Output = filepath.Join(temp, "tokens")
	if _, err := o.run(context.Background(), o.Inputs); err != nil {
		return err
	}
	if err := os.Rename(o.Output, folder); err != nil {
		if _, other := os.Stat(folder); other == nil {
			return nil // another process was first, with the same content
		}
		return fmt.Errorf("data: %w", err)
	}
	return syncFolder(root)
}
