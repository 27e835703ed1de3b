package train

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/asteria-runtime/asteria/coherreg"
)

const adoptionsName = "adoptions.jsonl"

// adoptionLog is adoptions.jsonl: one object for each refresh that an adoption
// point resolved, under the step as the blocks count it.
type adoptionLog struct {
	f   *os.File
	buf []byte
}

// openAdoptions opens the log of a run whose blocks have seen so many gradients;
// what a killed process wrote beyond that is removed.
func openAdoptions(folder string, calls int64) (*adoptionLog, error) {
	f, err := os.OpenFile(filepath.Join(folder, adoptionsName), os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, fmt.Errorf("train: %w", err)
	}
	end, err := keepSteps(f, calls)
	if err == nil {
		err = f.Truncate(end)
	}
	if err == nil {
		_, err = f.Seek(end, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("train: %s: %w", f.Name(), err)
	}
	return &adoptionLog{f: f}, nil
}

// add keeps a line until the next flush.
func (l *adoptionLog) add(a coherreg.Adoption) {
	if l == nil {
		return
	}
	l.buf = append(l.buf, `{"block":`...)
	l.buf = strconv.AppendInt(l.buf, int64(a.Block), 10)
	l.buf = append(l.buf, `,"step":`...)
	l.buf = strconv.AppendInt(l.buf, a.Step, 10)
	l.buf = append(l.buf, `,"as_of":`...)
	l.buf = strconv.AppendInt(l.buf, a.AsOf, 10)
	l.buf = append(l.buf, `,"version":`...)
	l.buf = strconv.AppendUint(l.buf, a.Version, 10)
	l.buf = append(l.buf, "}\n"...)
}

// flush writes the lines of a step in one call.
func (l *adoptionLog) flush() error {
	if l == nil || len(l.buf) == 0 {
		return nil
	}
	_, err := l.f.Write(l.buf)
	l.buf = l.buf[:0]
	if err != nil {
		return fmt.Errorf("train: %w", err)
	}
	return nil
}

func (l *adoptionLog) close() error {
	if l == nil {
		return nil
	}
	return l.f.Close()
}

// readAdoptions reads a log to replay.
func readAdoptions(path string) ([]coherreg.Adoption, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("train: runtime.replay: %w", err)
	}
	defer f.Close()
	out := []coherreg.Adoption{} // not nil: an empty log is one, too
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		var a coherreg.Adoption
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			return nil, fmt.Errorf("train: runtime.replay: %s:%d: %w", path, n, err)
		}
		out = append(out, a)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("train: runtime.replay: %s: %w", path, err)
	}
	return out, nil
}
