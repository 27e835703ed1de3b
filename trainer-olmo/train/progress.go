package train

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// liveEvery is the time between two drawings of the live line.
const liveEvery = 200 * time.Millisecond

// meter writes the progress of a run.
type meter struct {
	out   io.Writer
	live  bool
	total int64
	every int64 // steps between two plain lines
	drawn time.Time
	width int // of the live line on the screen
}

func newMeter(out io.Writer, live bool, total int64) *meter {
	return &meter{out: out, live: live, total: total, every: max(1, (total+19)/20)}
}

// progress is what a line shows.
type progress struct {
	step    int64
	loss    float64
	tps     float64
	perStep time.Duration // mean, for the time left
	extra   string
}

// show writes the line of a step if one is due. first is the first step of the
// process, after which a plain log says that training runs.
func (m *meter) show(p progress, first bool, now time.Time) {
	last := p.step == m.total
	if m.live {
		if last || now.Sub(m.drawn) >= liveEvery {
			m.drawn = now
			m.draw(m.line(p))
		}
		return
	}
	if first || last || p.step%m.every == 0 {
		fmt.Fprintln(m.out, m.line(p))
	}
}

func (m *meter) line(p progress) string {
	left := "-"
	if p.perStep > 0 {
		left = short(time.Duration(m.total-p.step) * p.perStep)
	}
	line := fmt.Sprintf("step %d/%d  loss %.4f  %s tok/s  eta %s", p.step, m.total, p.loss, count(p.tps), left)
	if p.extra != "" {
		line += "  " + p.extra
	}
	return line
}

// draw rewrites the live line; a shorter one covers the rest of the longer one.
func (m *meter) draw(line string) {
	fmt.Fprintf(m.out, "\r%s%s", line, strings.Repeat(" ", max(0, m.width-len(line))))
	m.width = len(line)
}

// say writes a line of its own.
func (m *meter) say(format string, args ...any) {
	if m.live && m.width > 0 {
		m.draw("")
		fmt.Fprint(m.out, "\r")
		m.width = 0
	}
	fmt.Fprintf(m.out, format+"\n", args...)
}

// done ends the live line.
func (m *meter) done() {
	if m.live && m.width > 0 {
		fmt.Fprintln(m.out)
		m.width = 0
	}
}

// count writes a number in four characters or so: 950, 12.3k, 4.56M.
func count(v float64) string {
	switch {
	case !(v > 0):
		return "-"
	case v >= 1e9:
		return fmt.Sprintf("%.2fG", v/1e9)
	case v >= 1e6:
		return fmt.Sprintf("%.2fM", v/1e6)
	case v >= 1e4:
		return fmt.Sprintf("%.1fk", v/1e3)
	}
	return fmt.Sprintf("%.0f", v)
}

// short writes a duration with two units at most: 45s, 3m20s, 2h05m.
func short(d time.Duration) string {
	d = d.Round(time.Second)
	h, m, s := int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60
	switch {
	case h > 0:
		return fmt.Sprintf("%dh%02dm", h, m)
	case m > 0:
		return fmt.Sprintf("%dm%02ds", m, s)
	}
	return fmt.Sprintf("%ds", s)
}
