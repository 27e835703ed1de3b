package main

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/asteria-runtime/asteria/nvmepage"
)

// row is one line of the table: one engine, one way, one block size and depth.
type row struct {
	Engine, Way string
	Size        int64 // bytes
	Depth       int
	Ours        []float64 // bytes per second, by round
	Fio         []float64 `json:",omitempty"` // of the same rounds
}

// bar is the ratio to fio that every row must reach.
const bar = 0.8

// measure runs all contenders in turn, reads after writes, and returns a row for
// each engine and way.
func measure(o *options, them *fio, size int64, depth int) (rows []*row, err error) {
	span, n := o.span<<20, o.move<<20
	n = max(n, 4*int64(depth)*size) // or filling and draining the queue is all that is measured
	var stores []*ours
	defer func() {
		for _, s := range stores {
			err = errors.Join(err, s.close())
		}
	}()
	for _, e := range []nvmepage.Engine{engineUring, enginePool} {
		s, err := openOurs(o.dir, o.align, size, depth, span, e, o.mem)
		if err != nil {
			fmt.Printf("left out: %v: %v\n", e, err)
			continue
		}
		stores = append(stores, s)
		for _, way := range []string{"write", "read"} {
			rows = append(rows, &row{Engine: e.String(), Way: way, Size: size, Depth: depth})
		}
	}
	for round := range o.rounds {
		for w, way := range []string{"write", "read"} {
			rates, err := turnByTurn(them, stores, round, way, size, depth, n)
			if err != nil {
				return nil, err
			}
			for i := range stores {
				r := rows[2*i+w]
				r.Ours = append(r.Ours, rates[i])
				if them != nil {
					r.Fio = append(r.Fio, rates[len(stores)])
				}
			}
		}
	}
	return rows, nil
}

// turnByTurn runs each of ours and fio, in an order that differs from round to round:
// who comes behind whom matters on drives that grant bursts. It returns their rates,
// fio's last.
func turnByTurn(them *fio, stores []*ours, round int, way string, size int64, depth int, n int64) ([]float64, error) {
	contenders := len(stores)
	if them != nil {
		contenders++
	}
	rates := make([]float64, contenders)
	for k := range contenders {
		i, err := (k+round)%contenders, error(nil)
		if round%2 == 1 {
			i = contenders - 1 - i
		}
		if i < len(stores) {
			rates[i], err = stores[i].run(way, n)
		} else {
			rates[i], err = them.run(way, size, depth, n)
		}
		if err != nil {
			return nil, err
		}
	}
	return rates, nil
}

func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(x))
	if len(s)%2 == 1 {
		return s[len(s)/2]
	}
	return (s[len(s)/2-1] + s[len(s)/2]) / 2
}

// ratio is the median over rounds of ours to fio, 0 without fio.
func (r *row) ratio() float64 {
	var q []float64
	for i, f := range r.Fio {
		q = append(q, r.Ours[i]/f)
	}
	return median(q)
}

func (rep *report) printHead(w io.Writer) {
	if rep.Warning != "" {
		fmt.Fprintln(w, rep.Warning)
	}
	if rep.Missing != "" {
		fmt.Fprintln(w, "left out:", rep.Missing)
	}
	how := "direct I/O"
	if !rep.Direct {
		how = "page cache (direct I/O was refused)"
	}
	fmt.Fprintf(w, "%s, alignment %d bytes, %s\n", how, rep.Align, rep.Fio)
	fmt.Fprintln(w, "MB/s, and ratio to fio as the median over rounds of both. Both have one caller and depth requests of one block in flight, and end a write when the drive has it, without a flush. Ours also computes or checks a CRC-32C of every block and moves a header with it, which do not count as bytes; its blocks lie on huge pages, as a trainer's state does, and fio's where those in flight fill one")
	fmt.Fprintf(w, "%-9s %-6s %9s %6s %10s %10s %6s\n", "engine", "way", "block", "depth", "ours", "fio", "ratio")
}

func (r *row) print(w io.Writer) {
	fmt.Fprintf(w, "%-9s %-6s %6d KiB %5d %10.0f", r.Engine, r.Way, r.Size>>10, r.Depth, median(r.Ours)/1e6)
	if len(r.Fio) > 0 {
		fmt.Fprintf(w, " %10.0f %6.2f", median(r.Fio)/1e6, r.ratio())
		if r.ratio() < bar {
			fmt.Fprintf(w, "  below %.1f", bar)
		}
	}
	fmt.Fprintln(w)
}

func (rep *report) printEnd(w io.Writer) {
	var lowest *row
	for _, r := range rep.Rows {
		if len(r.Fio) > 0 && (lowest == nil || r.ratio() < lowest.ratio()) {
			lowest = r
		}
	}
	if lowest != nil {
		fmt.Fprintf(w, "lowest ratio %.2f: %s, %s, %d KiB, depth %d\n", lowest.ratio(), lowest.Engine, lowest.Way, lowest.Size>>10, lowest.Depth)
	}
}
