package safetensors

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"unicode/utf8"
)

// MaxHeader bounds the bytes of a header, as the reference implementation does.
const MaxHeader = 100_000_000

// ErrFormat marks a file that breaks the format.
var ErrFormat = errors.New("safetensors: malformed file")

// Info describes a tensor in a file.
type Info struct {
	Name  string
	DType DType
	Shape []int
	// Begin and End bound its bytes, counted from the end of the header.
	Begin, End int64
}

// Len is the number of elements.
func (i Info) Len() int64 { return (i.End - i.Begin) / i.DType.Size() }

// malformed is an ErrFormat that says what is wrong.
func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrFormat, fmt.Sprintf(format, args...))
}

// parseHeader reads a header whose tensors fill dataBytes bytes. Tensors come
// back in the order of their data.
func parseHeader(header []byte, dataBytes int64) ([]Info, map[string]string, error) {
	if !utf8.Valid(header) {
		return nil, nil, malformed("header is not UTF-8")
	}
	p := parser{dec: json.NewDecoder(bytes.NewReader(header))}
	p.dec.UseNumber()
	meta := map[string]string{}
	var tensors []Info
	seen := map[string]bool{}
	err := p.object(func(name string) error {
		if seen[name] {
			return malformed("%q appears twice", name)
		}
		seen[name] = true
		if name == "__metadata__" {
			return p.metadata(meta)
		}
		info, err := p.tensor(name)
		tensors = append(tensors, info)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if _, err := p.dec.Token(); !errors.Is(err, io.EOF) {
		return nil, nil, malformed("header has text after its object")
	}
	return tensors, meta, checkLayout(tensors, dataBytes)
}

// checkLayout sorts the tensors by position and checks that they cover the data.
func checkLayout(tensors []Info, dataBytes int64) error {
	slices.SortFunc(tensors, func(a, b Info) int {
		return cmp.Or(cmp.Compare(a.Begin, b.Begin), cmp.Compare(a.End, b.End), cmp.Compare(a.Name, b.Name))
	})
	at := int64(0)
	for _, t := range tensors {
		if t.Begin < at {
			return malformed("%q overlaps the tensor before it", t.Name)
		}
		if t.Begin > at {
			return malformed("gap of %d bytes before %q", t.Begin-at, t.Name)
		}
		at = t.End
	}
	if at != dataBytes {
		return malformed("tensors have %d bytes, the file has %d", at, dataBytes)
	}
	return nil
}

// parser reads the header token by token, because a decoder into structs keeps
// the last of repeated keys without a word.
type parser struct{ dec *json.Decoder }

// token reads on; its errors are the format's.
func (p *parser) token() (json.Token, error) {
	t, err := p.dec.Token()
	if err != nil {
		return nil, malformed("header: %v", err)
	}
	return t, nil
}

// delim reads a bracket.
func (p *parser) delim(want json.Delim) error {
	t, err := p.token()
	if err == nil && t != want {
		err = malformed("header has %v where %v belongs", t, want)
	}
	return err
}

// object calls f after each key.
func (p *parser) object(f func(key string) error) error {
	if err := p.delim('{'); err != nil {
		return err
	}
	for p.dec.More() {
		key, err := p.token()
		if err != nil {
			return err
		}
		name, ok := key.(string)
		if !ok {
			return malformed("header has %v where a name belongs", key)
		}
		if err := f(name); err != nil {
			return err
		}
	}
	return p.delim('}')
}

// text reads a string.
func (p *parser) text() (string, error) {
	t, err := p.token()
	if err != nil {
		return "", err
	}
	s, ok := t.(string)
	if !ok {
		return "", malformed("header has %v where a string belongs", t)
	}
	return s, nil
}

// metadata reads the map of strings.
func (p *parser) metadata(meta map[string]string) error {
	return p.object(func(key string) error {
		if _, ok := meta[key]; ok {
			return malformed("metadata %q appears twice", key)
		}
		v, err := p.text()
		meta[key] = v
		return err
	})
}

// numbers reads an array of numbers that are not negative.
func (p *parser) numbers() ([]uint64, error) {
	if err := p.delim('['); err != nil {
		return nil, err
	}
	list := []uint64{}
	for p.dec.More() {
		t, err := p.token()
		if err != nil {
			return nil, err
		}
		n, ok := t.(json.Number)
		if !ok {
			return nil, malformed("header has %v where a number belongs", t)
		}
		v, err := strconv.ParseUint(n.String(), 10, 63)
		if err != nil {
			return nil, malformed("%v is not a size", n)
		}
		list = append(list, v)
	}
	return list, p.delim(']')
}

// tensor reads one entry and checks it against itself.
func (p *parser) tensor(name string) (Info, error) {
	info := Info{Name: name}
	var shape, offsets []uint64
	err := p.object(func(key string) (err error) {
		again := false
		switch key {
		case "dtype":
			again = info.DType != ""
			var s string
			s, err = p.text()
			info.DType = DType(s)
		case "shape":
			again = shape != nil
			shape, err = p.numbers()
		case "data_offsets":
			again = offsets != nil
			offsets, err = p.numbers()
		default:
			return malformed("%q has an unknown field %q", name, key)
		}
		if err == nil && again {
			err = malformed("%q has %s twice", name, key)
		}
		return err
	})
	if err != nil {
		return info, err
	}
	if info.DType == "" || shape == nil || len(offsets) != 2 {
		return info, malformed("%q lacks dtype, shape or two data_offsets", name)
	}
	return info, info.fill(shape, offsets)
}

// fill sets shape and range after it has checked them.
func (i *Info) fill(shape, offsets []uint64) error {
	size := sizes[i.DType]
	if size == 0 {
		return malformed("%q has unknown type %q", i.Name, i.DType)
	}
	bytes := size // in 62 bits, so that no later sum of two overflows
	for _, n := range shape {
		hi, lo := bits.Mul64(bytes, n)
		if hi != 0 || lo > 1<<62 || n > math.MaxInt {
			return malformed("shape %v of %q overflows", shape, i.Name)
		}
		bytes = lo
		i.Shape = append(i.Shape, int(n))
	}
	if offsets[1] < offsets[0] || offsets[1]-offsets[0] != bytes {
		return malformed("%q has bytes %d to %d, shape %v of %s needs %d", i.Name, offsets[0], offsets[1], shape, i.DType, bytes)
	}
	i.Begin, i.End = int64(offsets[0]), int64(offsets[1])
	return nil
}
