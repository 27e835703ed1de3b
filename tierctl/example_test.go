package tierctl_test

import (
	"context"
	"fmt"

	"github.com/asteria-runtime/asteria/tierctl"
	"github.com/asteria-runtime/asteria/tierctl/tierctltest"
)

// Two blocks share memory for one; the other one waits below.
func Example() {
	ctl, err := tierctl.New(tierctl.Options{Tiers: []tierctl.Tier{
		{Name: "host", Capacity: 4096},
		{Name: "nvme", Backing: &tierctltest.Memory{}},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ctl.Close()
	for id := range uint64(2) {
		if err := ctl.Add(id, 4096, 0); err != nil {
			fmt.Println(err)
		}
	}
	for now, id := range []uint64{0, 1, 0} {
		lease := new(tierctl.Lease)
		err := ctl.Acquire(context.Background(), lease, tierctl.Tick(now), id)
		if err != nil {
			fmt.Println(err)
			return
		}
		lease.Bytes(0)[0]++
		fmt.Printf("block %d, fetched %d, counts %d\n", id, lease.Missed(), lease.Bytes(0)[0])
		lease.Release(true)
	}
	// Output:
	// block 0, fetched 1, counts 1
	// block 1, fetched 1, counts 1
	// block 0, fetched 1, counts 2
}
