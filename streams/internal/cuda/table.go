package cuda

import (
	"strings"
	"unsafe"
)

// maxPlain bounds the arguments of plain: cublasSgemm has most.
const maxPlain = 14

// symbol is one function to be found: the first of names that the library has.
type symbol struct {
	at       *uintptr
	names    []string
	optional bool
}

func need(at *uintptr, names ...string) symbol { return symbol{at: at, names: names} }

func want(at *uintptr, names ...string) symbol { return symbol{at: at, names: names, optional: true} }

// resolve fills the table.
func resolve(handle uintptr, library string, symbols []symbol) error {
	for _, s := range symbols {
		for _, name := range s.names {
			if *s.at = lookup(handle, name); *s.at != 0 {
				break
			}
		}
		if *s.at == 0 && !s.optional {
			return &Missing{Library: library, Symbol: strings.Join(s.names, " or ")}
		}
	}
	return nil
}

// text copies a C string of the library's own, such as the name of a status.
func text(p *byte) string {
	if p == nil {
		return ""
	}
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}
