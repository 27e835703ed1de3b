package energy_test

import (
	"fmt"
	"testing/fstest"

	"github.com/asteria-runtime/asteria/trainer-olmo/energy"
)

func Example() {
	root := fstest.MapFS{
		"sys/class/powercap/intel-rapl:0/name":      {Data: []byte("package-0\n")},
		"sys/class/powercap/intel-rapl:0/energy_uj": {Data: []byte("1500000\n")},
	}
	m := energy.Open(energy.Options{FS: root, NoGPUs: true}) // Options{} is this machine
	defer m.Close()
	t := m.Sample()
	fmt.Println(m.Sources(), t.Has[energy.Package], t.Has[energy.DRAM], t.Joules[energy.Package])
	// Output: [{package package-0}] true false 0
}
