package data

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// FuzzMeta: no metadata panics, and what is accepted describes a possible file.
func FuzzMeta(f *testing.F) {
	good, _ := json.Marshal(Meta{Format: metaFormat, Version: metaVersion, DType: "uint16", Tokens: 5, MaxID: 3, VocabSize: 10, EOS: 1, Pad: -1})
	f.Add(good)
	f.Add([]byte(`{"format":"asteria-tokens","version":1,"dtype":"uint64","vocab_size":2147483648}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := parseMeta("x.json", raw)
		if err != nil {
			return
		}
		w, err := widthOf(m.DType)
		if err != nil || int64(m.VocabSize)-1 > w.MaxID() || m.MaxID >= int64(m.VocabSize) || m.EOS >= m.VocabSize {
			t.Errorf("accepted %s", raw)
		}
	})
}

// FuzzJSONLines: any bytes are documents or an error with a line number, and
// documents come in the order of their lines.
func FuzzJSONLines(f *testing.F) {
	f.Add([]byte(threeLines))
	f.Add([]byte("{\"text\":\"\\ud800\"}\n{\"text\":\"\x00\xff\"}"))
	f.Add([]byte("\n\n[]"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		last := int64(0)
		err := TokenizeOptions{}.eachLine(bytes.NewReader(raw), "f", "f", func(d document) error {
			if d.line <= last {
				t.Errorf("line %d after %d", d.line, last)
			}
			last = d.line
			return nil
		})
		if err != nil && !strings.Contains(err.Error(), "f line ") {
			t.Error(err)
		}
	})
}

// FuzzDocuments: lists of documents are ordered extents of the file or errors.
func FuzzDocuments(f *testing.F) {
	f.Add([]byte("0,2,a,b,1\n2,5,\"x,y\",b,2\n"))
	f.Add([]byte("9223372036854775807,-1\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		last := int64(0)
		_ = parseDocuments(bytes.NewReader(raw), 100, func(s Span) bool { // the error is one of many; order is what counts
			if s.DocStart < last || s.DocEnd < s.DocStart || s.DocEnd > 100 {
				t.Errorf("document %d to %d after %d", s.DocStart, s.DocEnd, last)
			}
			last = s.DocEnd
			return true
		})
	})
}

// FuzzTokenFile: any bytes and any width open to valid batches or an error.
func FuzzTokenFile(f *testing.F) {
	f.Add([]byte("\x01\x00\x02\x00\x03\x00\x04\x00\x05\x00\x06\x00\x07\x00\x08\x00"), uint8(1), uint8(0))
	f.Add([]byte(npyMagic+"0123456789"), uint8(0), uint8(1))
	f.Add(make([]byte, 64), uint8(3), uint8(2))
	kinds := []string{KindFixed, KindPadded, KindPacked}
	f.Fuzz(func(t *testing.T, raw []byte, width, kind uint8) {
		cfg := small(writeFile(t, t.TempDir(), "f.npy", string(raw)))
		cfg.DType = Width(1 << (width % 4)).String()
		cfg.Kind, cfg.EOS, cfg.Pad, cfg.BatchInstances = kinds[int(kind)%3], intp(3), intp(4), 1
		l, err := Open(cfg)
		if err != nil {
			return
		}
		defer l.Close()
		for k := range l.Batches() {
			for _, id := range mustBatch(t, l, k).Tokens {
				if id < 0 || int(id) >= cfg.VocabSize {
					t.Fatalf("id %d", id)
				}
			}
		}
	})
}
