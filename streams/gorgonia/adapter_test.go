//go:build cuda

package gorgonia

import (
	"testing"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/asteria-runtime/asteria/streams"
	"github.com/asteria-runtime/asteria/streams/cudasim"
)

func TestContextsAndStreamsGoBothWays(t *testing.T) {
	owner := cudasim.Device(t) // skips without a device, simulated or real
	h := owner.Context()
	ctx := &cu.Ctx{CUContext: *(*cu.CUContext)(unsafe.Pointer(&h))}
	d, err := Device(0, ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	ours, err := owner.NewStream(streams.Normal)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := Share(ours)
	if err != nil {
		t.Fatal(err)
	}
	back, err := Stream(d, theirs)
	if err != nil || back.Handle() != ours.Handle() || back.Handle() == 0 {
		t.Fatalf("%v, handle %x, want %x", err, back.Handle(), ours.Handle())
	}
	ran := false
	if err := back.Do(func() error { ran = true; return nil }); err != nil {
		t.Fatal(err)
	}
	if err := ours.Synchronize(t.Context()); err != nil || !ran {
		t.Fatalf("%v, ran %v: they are not one stream", err, ran)
	}
}

func TestWhatCannotBeSharedIsAnError(t *testing.T) {
	if _, err := Device(0, nil); err == nil {
		t.Error("no context was accepted")
	}
	host := streams.Host()
	defer host.Close()
	s, err := host.NewStream(streams.Normal)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Share(s); err == nil {
		t.Error("a host stream was shared")
	}
}
