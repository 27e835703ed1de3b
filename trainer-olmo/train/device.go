package train

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/streams"
	"github.com/asteria-runtime/asteria/trainer-olmo/asteria"
	"github.com/asteria-runtime/asteria/trainer-olmo/config"
	"github.com/asteria-runtime/asteria/trainer-olmo/cuda"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// deviceRuntime is a runtime that computes on an accelerator, which it owns.
type deviceRuntime[T gemm.Float] struct {
	*asteria.Runtime[T]
	device *streams.Device
}

// Close ends the runtime, then gives the accelerator back. What a failed device
// says then was said by the step that met the failure.
func (d *deviceRuntime[T]) Close() {
	d.Runtime.Close()
	_ = d.device.Close()
}

// onDevice opens the device that the key runtime.device names, puts it into the
// options that build uses, and returns the runtime.
func onDevice[T gemm.Float](c *config.Config, o *asteria.Options, log *slog.Logger, build func() (*asteria.Runtime[T], error)) (param.Optimizer, error) {
	ordinal, optional, err := c.Runtime.Accelerator()
	if err != nil {
		return nil, fmt.Errorf("train: runtime.device: %w", err)
	}
	if ordinal < 0 {
		return onHost(build)
	}
	device, err := streams.Open(ordinal)
	if optional && errors.Is(err, errors.ErrUnsupported) {
		log.Info("train: runtime.device auto: the CPU", "err", err)
		return onHost(build)
	}
	if err != nil {
		return nil, fmt.Errorf("train: runtime.device %s: %w", c.Runtime.Device, err)
	}
	backend, err := cuda.New(device, cuda.Options{MinOrder: c.Runtime.MinOrder, Logger: log})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("train: runtime.device %s: %w", c.Runtime.Device, err), device.Close())
	}
	o.Backend = backend
	r, err := build()
	if err != nil {
		return nil, errors.Join(err, device.Close())
	}
	return &deviceRuntime[T]{r, device}, nil
}

// onHost returns what build does; not a nil runtime in an interface that is not nil.
func onHost[T gemm.Float](build func() (*asteria.Runtime[T], error)) (param.Optimizer, error) {
	r, err := build()
	if err != nil {
		return nil, err
	}
	return r, nil
}
