package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fileOf builds the bytes of a file from its header and data.
func fileOf(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, data)...)
}

func TestHeadersThatAreRefused(t *testing.T) {
	good := `{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"no bytes":                   {nil, "0 bytes"},
		"length cut":                 {[]byte{1, 2, 3}, "3 bytes"},
		"header longer than file":    {binary.LittleEndian.AppendUint64(nil, 9), "header of 9 bytes"},
		"header over the limit":      {append(binary.LittleEndian.AppendUint64(nil, MaxHeader+1), make([]byte, 64)...), "header of 100000001"},
		"header length negative":     {append(binary.LittleEndian.AppendUint64(nil, 1<<63), make([]byte, 64)...), "header of"},
		"empty header":               {fileOf("", 0), "EOF"},
		"not JSON":                   {fileOf("hello", 0), "invalid character"},
		"not an object":              {fileOf("[]", 0), "where {"},
		"not UTF-8":                  {fileOf("{\"\xff\":1}", 0), "UTF-8"},
		"cut JSON":                   {fileOf(good[:20], 8), "EOF"},
		"text after":                 {fileOf(good+"x", 8), "text after"},
		"second object":              {fileOf(good+"{}", 8), "text after"},
		"data cut":                   {fileOf(good, 7), "the file has 7"},
		"data too long":              {fileOf(good, 9), "the file has 9"},
		"unknown type":               {fileOf(`{"a":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}}`, 8), `"a" has unknown type "F33"`},
		"unknown field":              {fileOf(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}}`, 8), `unknown field "x"`},
		"no shape":                   {fileOf(`{"a":{"dtype":"F32","data_offsets":[0,8]}}`, 8), `"a" lacks`},
		"one offset":                 {fileOf(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[8]}}`, 8), `"a" lacks`},
		"shape and range differ":     {fileOf(`{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}`, 8), "needs 12"},
		"range reversed":             {fileOf(`{"a":{"dtype":"F32","shape":[0],"data_offsets":[8,0]}}`, 8), "bytes 8 to 0"},
		"negative side":              {fileOf(`{"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}}`, 8), "-2 is not a size"},
		"fractional side":            {fileOf(`{"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}}`, 8), "2.0 is not a size"},
		"side as text":               {fileOf(`{"a":{"dtype":"F32","shape":["2"],"data_offsets":[0,8]}}`, 8), "where a number"},
		"shape overflows":            {fileOf(`{"a":{"dtype":"F32","shape":[4611686018427387905,4],"data_offsets":[0,16]}}`, 16), "overflows"},
		"shape overflows to zero":    {fileOf(`{"a":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}}`, 0), "overflows"},
		"offset over 63 bits":        {fileOf(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[18446744073709551615,8]}}`, 8), "not a size"},
		"name twice":                 {fileOf(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8), `"a" appears twice`},
		"type twice":                 {fileOf(`{"a":{"dtype":"F32","dtype":"F16","shape":[2],"data_offsets":[0,8]}}`, 8), "dtype twice"},
		"overlap":                    {fileOf(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}`, 12), `"b" overlaps`},
		"same range twice":           {fileOf(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 8), `"b" overlaps`},
		"gap":                        {fileOf(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[12,16]}}`, 16), `gap of 4 bytes before "b"`},
		"gap at the start":           {fileOf(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}`, 12), `gap of 4 bytes before "a"`},
		"metadata is not a map":      {fileOf(`{"__metadata__":3}`, 0), "where {"},
		"metadata of numbers":        {fileOf(`{"__metadata__":{"a":3}}`, 0), "where a string"},
		"metadata twice":             {fileOf(`{"__metadata__":{},"__metadata__":{}}`, 0), "appears twice"},
		"metadata with a name twice": {fileOf(`{"__metadata__":{"a":"1","a":"2"}}`, 0), `"a" appears twice`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("hostile", bytes.NewReader(c.file), int64(len(c.file)))
			if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "hostile") {
				t.Errorf("got %v, want a malformed file with %q", err, c.want)
			}
		})
	}
}

func TestHeadersThatAreTaken(t *testing.T) {
	for name, c := range map[string]struct {
		header string
		data   int
		want   []Info
	}{
		"no tensors": {"{}", 0, nil},
		"padding":    {"{}   \n ", 0, nil},
		"scalar":     {`{"a":{"dtype":"F64","shape":[],"data_offsets":[0,8]}}`, 8, []Info{{Name: "a", DType: F64, End: 8}}},
		"empty tensor among others": {
			`{"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"BF16","shape":[0,7],"data_offsets":[4,4]},"c":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}}`, 6,
			[]Info{
				{Name: "b", DType: F32, Shape: []int{1}, End: 4},
				{Name: "a", DType: BF16, Shape: []int{0, 7}, Begin: 4, End: 4},
				{Name: "c", DType: "U8", Shape: []int{2}, Begin: 4, End: 6},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := fileOf(c.header, c.data)
			f, err := Parse("good", bytes.NewReader(b), int64(len(b)))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, f.Tensors()); d != "" {
				t.Error(d)
			}
		})
	}
}

// A file that shrinks after it was opened is an error, not a fault.
func TestFileCutWhileOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.safetensors")
	b := fileOf(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 8)
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Truncate(path, int64(len(b)-1)); err != nil {
		t.Fatal(err)
	}
	err = Read(f, f.Tensors()[0], make([]float32, 2))
	if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
}

func TestOpenRefusesFolders(t *testing.T) {
	if _, err := Open(t.TempDir()); err == nil || !strings.Contains(err.Error(), "regular") {
		t.Errorf("got %v", err)
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// FuzzHeader holds that no file makes the reader panic, and that what is accepted
// covers the data exactly and survives being written again.
func FuzzHeader(f *testing.F) {
	for _, h := range []string{
		"{}", `{"__metadata__":{"format":"pt"}}`, `{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`,
		`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F16","shape":[2],"data_offsets":[4,8]}}`,
		`{"a":{"dtype":"F32","shape":[99999999999],"data_offsets":[0,8]}}`,
	} {
		f.Add(fileOf(h, 8))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := Parse("fuzz", bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		var bytes int64
		for _, info := range file.Tensors() {
			bytes += info.End - info.Begin
			if info.DType.floats() {
				if err := Read(file, info, make([]float32, info.Len())); err != nil {
					t.Fatal(err)
				}
			}
		}
		if file.data+bytes != int64(len(b)) {
			t.Fatalf("tensors cover %d of %d bytes", bytes, int64(len(b))-file.data)
		}
		h, err := headerFor(file.Tensors(), file.Metadata())
		if err != nil {
			t.Fatal(err)
		}
		again, _, err := parseHeader(h[8:], bytes)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(file.Tensors(), again); d != "" {
			t.Fatal(d)
		}
	})
}
