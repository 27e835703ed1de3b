package train

import (
	"errors"

	"github.com/asteria-runtime/asteria/trainer-olmo/config"
	"github.com/asteria-runtime/asteria/trainer-olmo/data"
)

// source serves batches; [data.Loader] is the one that trains.
type source interface {
	// Batch fills b with global batch k, counted from 0 over all epochs.
	Batch(k int64, b *data.Batch) error
	// Batches is the number of batches in an epoch.
	Batches() int64
	// Fingerprint identifies the data and its order.
	Fingerprint() string
	Close() error
}

// warner is a source that noticed something about its files.
type warner interface{ Warnings() []string }

// sources opens the training data and the held-out data; the latter may be nil.
type sources func(c *config.Config) (train, heldOut source, err error)

// openSources opens the files that the configuration names.
func openSources(c *config.Config) (train, heldOut source, err error) {
	l, err := data.Open(c.DataConfig())
	if err != nil {
		return nil, nil, err
	}
	if c.Eval.Disabled {
		return l, nil, nil
	}
	h, err := openHeldOut(c)
	if err != nil {
		return nil, nil, errors.Join(err, l.Close())
	}
	return l, h, nil
}
