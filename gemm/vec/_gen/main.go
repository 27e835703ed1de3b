// Command _gen writes the float32 kernels of package vec: one assembly file with
// an AVX-512 and an AVX2 version of every entry of the kernel table, their Go
// declarations, and the dispatchers for amd64 and for all other builds.
//
// Both versions of a kernel come from one body, so that they round alike. No
// body uses a fused multiply-add on float32: the portable specification then
// gives the same bits on every machine.
package main

import (
	"flag"
	"log"
	"os"
	"path/filepath"

	. "github.com/mmcloughlin/avo/build"
)

func main() {
	dir := flag.String("dir", "..", "folder of the dispatch files")
	flag.Parse()
	ConstraintExpr("amd64,gc,!noasm")
	declareData()
	for _, k := range kernels() {
		for _, s := range []*isa{&avx512, &avx2} {
			emit(k, s)
		}
	}
	Generate()
	asm, stubs := neonFiles(kernels())
	if err := os.WriteFile(filepath.Join(*dir, "kernels_arm64.s"), asm, 0o644); err != nil {
		log.Fatal(err)
	}
	if err := writeFormatted(filepath.Join(*dir, "kernels_arm64.go"), stubs); err != nil {
		log.Fatal(err)
	}
	for name, text := range dispatch(kernels()) {
		if err := writeFormatted(filepath.Join(*dir, name), text); err != nil {
			log.Fatal(err)
		}
	}
}
