package tokenizer

import "errors"

// Load reads a tokenizer.json.
func Load(path string) (Tokenizer, error) {
	return nil, errors.New("tokenizer: load " + path + ": not built yet")
}
