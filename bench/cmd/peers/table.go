package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
)

func (r *report) printHead(w io.Writer) {
	fmt.Fprintf(w, "%s, %s, kernels %s\n", r.CPU, r.Go, r.Kernels)
	for _, name := range slices.Sorted(maps.Keys(r.Libraries)) {
		fmt.Fprintf(w, "%s: %s\n", name, r.Libraries[name])
	}
	for _, m := range r.Missing {
		fmt.Fprintf(w, "left out: %s\n", m)
	}
	if r.Warning != "" {
		fmt.Fprintln(w, r.Warning)
	}
	for _, n := range slices.Sorted(maps.Keys(r.FMA)) {
		fmt.Fprintf(w, "FMA peak, %d thread(s): %.1f GFLOP/s float32, %.1f float64\n", n, r.FMA[n], r.FMA[n]/2)
	}
	fmt.Fprintf(w, "taken off each peer call: %s (Fortran), %s (dnnl_sgemm)\n", r.Overhead["Fortran call"], r.Overhead["dnnl_sgemm"])
	fmt.Fprintln(w, "times: minimum (median) of interleaved rounds; ratio: median over the rounds of the best peer's time divided by ours")
}

// hasPeak tells which groups do nothing but multiply and add.
func hasPeak(group string) bool {
	return strings.Contains(group, "GEMM") || strings.Contains(group, "SYRK")
}

func (r *report) printGroup(w io.Writer, group string, threads int) {
	fmt.Fprintf(w, "\n%s, %d thread(s)\n", group, threads)
}

func (r *report) printRow(w io.Writer, x *result) {
	fmt.Fprintf(w, "  %-26s", x.Shape)
	for _, p := range x.Peers {
		fmt.Fprintf(w, "  %s %s (%s)", p.Name, duration(p.Min), duration(p.Median))
		if p.Error != "" {
			fmt.Fprintf(w, " [%s]", p.Error)
		}
	}
	ratio, best := x.ratio()
	fmt.Fprintf(w, "  ratio %.2f ±%.0f%% of %d to %s", ratio, 100*x.spread(), x.Rounds, best)
	if hasPeak(x.Group) {
		peak := r.FMA[x.Threads]
		if strings.HasPrefix(x.Group, "D") {
			peak /= 2
		}
		rate := x.Flops / x.Peers[0].Min / 1e9
		fmt.Fprintf(w, "  %.1f GFLOP/s", rate)
		if peak > 0 {
			fmt.Fprintf(w, " = %.0f%% of FMA", 100*rate/peak)
		}
	}
	fmt.Fprintln(w)
}

// duration prints seconds with three digits.
func duration(s float64) string {
	switch {
	case s < 1e-3:
		return fmt.Sprintf("%.3gus", s*1e6)
	case s < 1:
		return fmt.Sprintf("%.3gms", s*1e3)
	}
	return fmt.Sprintf("%.3gs", s)
}

// printSummary gives the geometric mean and the worst row of each group.
func (r *report) printSummary(w io.Writer) {
	fmt.Fprintln(w, "\ngeometric mean of the ratios (lowest row)")
	type key struct {
		group   string
		threads int
	}
	var order []key
	rows := map[key][]*result{}
	for i := range r.Results {
		x := &r.Results[i]
		k := key{x.Group, x.Threads}
		if rows[k] == nil {
			order = append(order, k)
		}
		rows[k] = append(rows[k], x)
	}
	for _, k := range order {
		var logs, n float64
		low, at := math.Inf(1), ""
		for _, x := range rows[k] {
			ratio, best := x.ratio()
			if best == "" {
				continue
			}
			logs, n = logs+math.Log(ratio), n+1
			if ratio < low {
				low, at = ratio, x.Shape
			}
		}
		if n > 0 {
			fmt.Fprintf(w, "  %-26s %d thread(s)  %.2f  (%.2f at %s)\n", k.group, k.threads, math.Exp(logs/n), low, at)
		}
	}
}
