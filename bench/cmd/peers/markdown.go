package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// printMarkdown writes a table a group, with a row a shape and columns for each number of
// threads: our median time, the ratio to the best peer, which that is.
func (r *report) printMarkdown(w io.Writer) {
	counts := slices.Sorted(maps.Keys(r.FMA))
	var groups []string
	for _, x := range r.Results {
		if !slices.Contains(groups, x.Group) {
			groups = append(groups, x.Group)
		}
	}
	for _, g := range groups {
		fmt.Fprintf(w, "| %s |", g)
		for _, n := range counts {
			fmt.Fprintf(w, " ours, %d %s | ratio | best peer |", n, plural(n, "thread"))
		}
		fmt.Fprintf(w, "\n|---|%s\n", strings.Repeat("---|---|---|", len(counts)))
		for _, shape := range r.shapes(g) {
			fmt.Fprintf(w, "| %s |", shape)
			for _, n := range counts {
				r.printCells(w, g, shape, n)
			}
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w)
	}
}

// shapes lists the rows of a group in the order in which they were measured.
func (r *report) shapes(group string) (shapes []string) {
	for _, x := range r.Results {
		if x.Group == group && !slices.Contains(shapes, x.Shape) {
			shapes = append(shapes, x.Shape)
		}
	}
	return shapes
}

func (r *report) printCells(w io.Writer, group, shape string, threads int) {
	for i := range r.Results {
		if x := &r.Results[i]; x.Group == group && x.Shape == shape && x.Threads == threads {
			ratio, best := x.ratio()
			fmt.Fprintf(w, " %s | %.2f | %s |", strings.Replace(duration(x.Peers[0].Median), "us", "µs", 1), ratio, best)
			return
		}
	}
	fmt.Fprint(w, " | | |")
}

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}
