//go:build !(linux && (amd64 || arm64))

package cuda

import "strings"

// open finds nothing: the libraries are looked for on Linux, amd64 and arm64.
func open(names ...string) (handle uintptr, name string, err error) {
	return 0, "", &Missing{Library: strings.Join(names, ", ")}
}

func lookup(uintptr, string) uintptr { return 0 }

func newCallback(func(uintptr) uintptr) uintptr { return 0 }

// call is never reached: no table is ever filled.
func call(uintptr, ...uintptr) int { return codeUnsupported }

func plain(uintptr, ...uintptr) int { return codeUnsupported }
