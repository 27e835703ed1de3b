package cuda

import "sync"

// Note: one callback
//
// A function that C can call lives as long as the process, so there is exactly one
// for host functions, made on first use. What it is called with is the number of a
// slot in a table; the table is of the process because the callback is.

// HostCall is what a host function does. It runs on a thread of the driver and
// must not call the driver.
type HostCall interface{ RunHost() }

// slot holds one call. Its generation is part of the number, so that a driver
// that calls back late cannot run what took the slot since.
type slot struct {
	call       HostCall
	generation uint32
}

var calls struct {
	mu    sync.Mutex
	slots []slot
	free  []uint32 // indices of empty slots
}

var callback = sync.OnceValue(func() uintptr {
	return newCallback(func(id uintptr) uintptr {
		if c := TakeCall(id); c != nil {
			c.RunHost()
		}
		return 0
	})
})

// Callback returns the C function to hand to LaunchHost.
func Callback() uintptr { return callback() }

// KeepCall stores c until it is taken and returns its number.
func KeepCall(c HostCall) uintptr {
	calls.mu.Lock()
	defer calls.mu.Unlock()
	if len(calls.free) == 0 {
		calls.free = append(calls.free, uint32(len(calls.slots)))
		calls.slots = append(calls.slots, slot{})
	}
	i := calls.free[len(calls.free)-1]
	calls.free = calls.free[:len(calls.free)-1]
	calls.slots[i].call = c
	return uintptr(uint64(calls.slots[i].generation)<<32 | uint64(i))
}

// TakeCall empties a slot and returns what it held, nil when it was empty.
func TakeCall(id uintptr) HostCall {
	calls.mu.Lock()
	defer calls.mu.Unlock()
	i := uint32(id)
	if calls.slots[i].generation != uint32(uint64(id)>>32) {
		return nil
	}
	return empty(i)
}

// empty frees slot i; the table is locked.
func empty(i uint32) HostCall {
	c := calls.slots[i].call
	calls.slots[i] = slot{generation: calls.slots[i].generation + 1}
	calls.free = append(calls.free, i)
	return c
}

// DropCalls empties the slots for which match says so: those of a stream whose
// context broke before they ran.
func DropCalls(match func(HostCall) bool) {
	calls.mu.Lock()
	defer calls.mu.Unlock()
	for i := range calls.slots {
		if c := calls.slots[i].call; c != nil && match(c) {
			empty(uint32(i))
		}
	}
}

// PendingCalls counts the slots in use.
func PendingCalls() int {
	calls.mu.Lock()
	defer calls.mu.Unlock()
	return len(calls.slots) - len(calls.free)
}

// Fence orders what host functions did before what the caller does next, for the
// race detector, which does not see the order that the driver keeps.
func Fence() {
	calls.mu.Lock()
	calls.mu.Unlock() //nolint:staticcheck // the pair is the point
}
