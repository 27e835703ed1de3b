package train

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/asteria-runtime/asteria/hooks"
)

const traceName = "trace.json"

// The rows of a trace.
const (
	rowStep    = 1 // whole steps and refreshes inside them
	rowPoints  = 2 // what lies between two hook points
	rowBarrier = 3 // adoption points that wait
	rowWorkers = 10
)

// trace writes trace.json, a trace in the JSON array format of Chrome, which
// Perfetto reads, of this process's part of the run. The format lets the closing
// bracket be missing, so that the trace of a killed run opens, too. A nil trace
// writes nothing. Safe for concurrent use.
type trace struct {
	mu    sync.Mutex
	f     *os.File
	w     *bufio.Writer
	buf   []byte
	start time.Time
	named map[int]bool
	err   error // the first; the run goes on without a trace
}

func openTrace(folder string) (*trace, error) {
	f, err := os.Create(filepath.Join(folder, traceName))
	if err != nil {
		return nil, fmt.Errorf("train: %w", err)
	}
	t := &trace{f: f, w: bufio.NewWriterSize(f, 1<<16), start: time.Now(), named: map[int]bool{}}
	_, t.err = t.w.WriteString("[\n")
	t.name(rowStep, "training")
	t.name(rowPoints, "hooks")
	return t, nil
}

// span writes that something ran on a row. what must need no quoting beyond that
// of Go.
func (t *trace) span(row int, what string, start time.Time, d time.Duration) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begin("X", row, what)
	t.micros(`,"ts":`, start.Sub(t.start))
	t.micros(`,"dur":`, d)
	t.end()
}

// name gives a row its name, once.
func (t *trace) name(row int, name string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.named[row] {
		return
	}
	t.named[row] = true
	t.begin("M", row, "thread_name")
	t.buf = append(t.buf, `,"args":{"name":`...)
	t.buf = strconv.AppendQuoteToASCII(t.buf, name)
	t.buf = append(t.buf, '}')
	t.end()
}

func (t *trace) begin(phase string, row int, what string) {
	t.buf = append(t.buf[:0], `{"pid":1,"ph":"`...)
	t.buf = append(t.buf, phase...)
	t.buf = append(t.buf, `","tid":`...)
	t.buf = strconv.AppendInt(t.buf, int64(row), 10)
	t.buf = append(t.buf, `,"name":`...)
	t.buf = strconv.AppendQuoteToASCII(t.buf, what)
}

// micros appends a time in microseconds, the unit of the format.
func (t *trace) micros(key string, d time.Duration) {
	t.buf = append(t.buf, key...)
	t.buf = strconv.AppendFloat(t.buf, float64(d)/1e3, 'f', 3, 64)
}

func (t *trace) end() {
	t.buf = append(t.buf, "},\n"...)
	if t.err == nil {
		_, t.err = t.w.Write(t.buf)
	}
}

// close ends the array with an event that is not followed by a comma.
func (t *trace) close() error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	_, err := t.w.WriteString(`{"pid":1,"ph":"M","tid":1,"name":"process_name","args":{"name":"trainer-olmo"}}` + "\n]\n")
	return errors.Join(t.err, err, t.w.Flush(), t.f.Close())
}

// refreshed and waited are the runtime's observers.
func (t *trace) refreshed(block string, worker int, start time.Time, d time.Duration) {
	row := rowStep
	if worker > 0 {
		row = rowWorkers + worker
		t.name(row, fmt.Sprintf("worker %d", worker))
	}
	t.span(row, "refresh "+block, start, d)
}

func (t *trace) waited(block string, start time.Time, d time.Duration) {
	t.name(rowBarrier, "barrier")
	t.span(rowBarrier, "wait "+block, start, d)
}

// spans are the pairs of points that a trace shows, the update among them.
var spans = []struct {
	from, to hooks.Point
	name     string
}{
	{hooks.PreForward, hooks.PostForward, "forward"},
	{hooks.PreBackward, hooks.PostBackward, "backward"},
	{hooks.PreUpdate, hooks.PostUpdate, "update"},
	{hooks.StepBegin, hooks.StepEnd, "step"},
}

// watch registers the trace at the points of s; the returned function removes it.
func (t *trace) watch(s *hooks.Schedule) (remove func()) {
	var removes []func()
	for _, p := range spans {
		var begun time.Time
		row := rowPoints
		if p.from == hooks.StepBegin {
			row = rowStep
		}
		removes = append(removes,
			s.On(p.from, "trace", nil, func(context.Context, hooks.Event) error { begun = time.Now(); return nil }),
			s.On(p.to, "trace", nil, func(_ context.Context, ev hooks.Event) error {
				what := p.name + " " + strconv.FormatInt(ev.Step, 10)
				if ev.Layer >= 0 {
					what = p.name + " layer " + strconv.Itoa(ev.Layer)
				}
				t.span(row, what, begun, time.Since(begun))
				return nil
			}))
	}
	return func() {
		for _, f := range removes {
			f()
		}
	}
}
