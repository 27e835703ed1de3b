package doctor

import (
	"fmt"
	"strings"

	"github.com/asteria-runtime/asteria/streams"
	"github.com/asteria-runtime/asteria/uvm"
)

// cuda asks the driver itself: a library that is there and does not work is of no
// use. Then the devices, how they reach memory, and the libraries beside the driver.
func cuda(o Options) []Finding {
	looked := "libcuda.so.1 and its devices (loader paths and LD_LIBRARY_PATH)"
	infos, err := o.Devices()
	if err != nil {
		found := strings.TrimPrefix(err.Error(), "streams: ")
		if text, err := o.read("/proc/driver/nvidia/version"); err == nil {
			first, _, _ := strings.Cut(text, "\n")
			found += "; the kernel module is there: " + first
		}
		return one("CUDA", Missing, found, looked)
	}
	out := one("CUDA", OK, fmt.Sprintf("%d device(s)", len(infos)), looked)
	if len(infos) > 0 {
		out[0].Found += ", driver for CUDA " + version(infos[0].Driver)
	}
	for _, i := range infos {
		access := uvm.Choose(i.Integrated, i.Pageable && i.HostTables, i.Managed && i.Concurrent)
		out = append(out, Finding{
			fmt.Sprintf("cuda:%d", i.Ordinal), OK,
			fmt.Sprintf("%s, compute capability %d.%d, %d multiprocessors, %s, %s; memory: %v", i.Name, i.Capability/10, i.Capability%10,
				i.Multiprocessors, bytes(i.TotalBytes), architecture(i), access),
			"the driver's description of the device",
		})
	}
	return append(out, cudaLibrary(o, "cuBLAS", "our own product kernel", "libcublas.so.13", "libcublas.so.12", "libcublas.so.11"),
		cudaLibrary(o, "cuSOLVER", "the eigensolver of the CPU", "libcusolver.so.12", "libcusolver.so.11"))
}

func version(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// architecture says in words how host and device share memory.
func architecture(i streams.Info) string {
	switch {
	case i.Integrated && i.Pageable && i.HostTables:
		return "integrated, hardware-coherent"
	case i.Integrated:
		return "integrated"
	case i.Pageable && i.HostTables:
		return "hardware-coherent"
	case i.Concurrent:
		return "discrete, concurrent managed access"
	}
	return "discrete"
}

func cudaLibrary(o Options, topic, without string, names ...string) Finding {
	looked := strings.Join(names, ", ")
	if file := library(o, names...); file != "" {
		return Finding{topic, OK, file, looked}
	}
	return Finding{topic, Missing, "not found; " + without + " is used", looked}
}
