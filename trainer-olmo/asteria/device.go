package asteria

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/kron"
)

// DeviceNeed is the accelerator's memory that a plan's run takes there, in bytes. It
// is an estimate: temporary memory comes in powers of two, and how much the vendor's
// libraries take depends on their version.
type DeviceNeed struct {
	State     int64 // of the blocks, where the device's architecture keeps it there
	Operands  int64 // gradients, parameters and working memory of the steps
	Refreshes int64 // matrices that refreshes work on
	Libraries int64 // of cuBLAS and cuSOLVER
}

// libraryBytes is what a worker's handles of cuBLAS and cuSOLVER take, about: cuBLAS
// documents a workspace of 32 MiB a handle for the newest devices and 4 MiB for others.
const libraryBytes = 40 << 20

// deviceNeed estimates for the workers that [New] makes.
func deviceNeed[T gemm.Float](sites []site[T], threads int, o Options, placed int64) (d DeviceNeed) {
	alone, queue := divide(sites, threads)
	for _, s := range sites {
		d.State += objectBytes[T](s.block.Layout().Len())
	}
	if o.Tiers != nil { // all that is in addressable tiers
		d.State = placed
		if o.Tiers.Host > 0 {
			d.State = min(placed, o.Tiers.Device+o.Tiers.Host)
		}
	}
	addDevice(&d, alone, min(1, len(alone)), true)
	addDevice(&d, queue, min(threads, threads*len(queue)), true)
	if o.Mode == Asteria {
		addDevice(&d, append(append([]*kron.Block[T](nil), alone...), queue...), o.Async.workers(), false)
	}
	return d
}

// addDevice counts so many workers for any of the blocks; steps says that they do not
// only refresh.
func addDevice[T gemm.Float](d *DeviceNeed, blocks []*kron.Block[T], workers int, steps bool) {
	if workers == 0 || len(blocks) == 0 {
		return
	}
	each, elem := int64(workers), int64(unsafe.Sizeof(T(0)))
	d.Libraries += each * libraryBytes
	// Six matrices of T, three in double beside them, and cuSOLVER's work of about two.
	n := int64(largestFactor(blocks))
	d.Refreshes += each * n * n * (6*elem + 5*8)
	if steps {
		// The scratch with a packed gradient and parameter, each rounded up.
		d.Operands += each * 2 * elem * int64(kron.ScratchLen(blocks...)+2*largestBlock(blocks))
	}
}

// largestBlock is the elements of the largest block.
func largestBlock[T gemm.Float](blocks []*kron.Block[T]) (n int) {
	for _, b := range blocks {
		n = max(n, b.Len())
	}
	return n
}

// checkRoom asks an accelerator whether it can hold what is planned.
func checkRoom(p Plan, b Backend) error {
	if b == nil {
		return nil
	}
	room, free, err := b.Room()
	if err != nil {
		return err
	}
	return p.CheckDevice(room, free)
}

// CheckDevice refuses a plan whose state does not fit into so many bytes, or all of it
// into what is free of the device, and shows the arithmetic. With room for any state
// (math.MaxInt64) the state is not the device's.
func (p Plan) CheckDevice(room, free int64) error {
	d := p.Device
	work := d.Operands + d.Refreshes + d.Libraries
	onDevice := d.State
	if room == math.MaxInt64 {
		onDevice = 0
	}
	if onDevice <= room && onDevice+work <= free {
		return nil
	}
	return fmt.Errorf("asteria: the device has %d bytes free, %d of them for state; the run needs about %d: state %d + operands %d + refreshes %d + libraries %d; smaller tiers.device and tiers.host with tiers.nvme.path, fewer runtime.workers or train.threads lower it",
		free, min(room, free), onDevice+work, onDevice, d.Operands, d.Refreshes, d.Libraries)
}
