package report

import (
	"bytes"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed report.html.tmpl
var files embed.FS

// Page is what a report shows besides the runs themselves.
type Page struct {
	// Title is the heading. Default: the names of the runs.
	Title string
	// Baseline is the group that the others are measured against. Default: that
	// of the first run.
	Baseline string
	// Notes are paragraphs below the heading, as plain text.
	Notes []string
}

// Write draws the figures of the runs, writes them as PNG files beside
// report.html, and writes that page, which holds them inline. It returns the
// path of the page.
func Write(folder string, runs []*Run, page Page) (string, error) {
	if len(runs) == 0 {
		return "", fmt.Errorf("report: no runs")
	}
	figures, err := Figures(runs)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", fmt.Errorf("report: %w", err)
	}
	for _, f := range figures {
		if err := os.WriteFile(filepath.Join(folder, f.File), f.PNG, 0o644); err != nil {
			return "", fmt.Errorf("report: %w", err)
		}
	}
	var b bytes.Buffer
	if err := HTML(&b, runs, figures, page); err != nil {
		return "", err
	}
	file := filepath.Join(folder, "report.html")
	if err := replaceFile(file, b.Bytes()); err != nil {
		return "", fmt.Errorf("report: %w", err)
	}
	return file, nil
}

// replaceFile writes beside the file and renames, so that a reader never sees
// half a page.
func replaceFile(file string, data []byte) error {
	tmp := file + ".tmp"
	if err := os.WriteFile(tmp, data, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, file)
}

// HTML writes the page: one file, no reference to anything outside it.
func HTML(w io.Writer, runs []*Run, figures []Figure, page Page) error {
	t, err := template.New("report.html.tmpl").Funcs(template.FuncMap{"inline": inline}).ParseFS(files, "report.html.tmpl")
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	header, rows := table(runs, page.Baseline)
	view := struct {
		Title          string
		Notes          []string
		Header         []string
		Rows           [][]string
		Best           []bool
		Seeds          string
		Figures        []Figure
		DiffHeader     []string
		Diff           [][]string
		Health, Config []section
	}{
		Title: page.Title, Notes: page.Notes, Header: header, Rows: rows, Best: best(runs), Figures: figures,
	}
	if view.Title == "" {
		view.Title = names(runs)
	}
	var seeds strings.Builder
	if err := Groups(&seeds, runs); err != nil {
		return err
	}
	view.Seeds = seeds.String()
	view.DiffHeader, view.Diff = configDiff(runs)
	for _, r := range runs {
		if len(r.Health) > 0 {
			view.Health = append(view.Health, healthSection(r))
		}
		if r.Config != "" {
			view.Config = append(view.Config, section{Name: r.Name, Text: r.Config})
		}
	}
	if err := t.Execute(w, view); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// section is one foldable part of the page.
type section struct {
	Name   string
	Text   string
	Header []string
	Rows   [][]string
}

// inline is a picture as a data URL.
func inline(png []byte) template.URL {
	return template.URL("data:image/png;base64," + base64.StdEncoding.EncodeToString(png))
}

func names(runs []*Run) string {
	var out []string
	for _, r := range runs {
		out = append(out, r.Name)
	}
	if len(out) > 4 {
		return fmt.Sprintf("%d runs", len(out))
	}
	return strings.Join(out, ", ")
}

// best marks the run with the lowest held-out loss, when several have one.
func best(runs []*Run) []bool {
	marks := make([]bool, len(runs))
	at, n := -1, 0
	low := 0.0
	for i, r := range runs {
		if h := r.HeldOut(); h.Len() > 0 {
			n++
			if at < 0 || h.Last() < low {
				at, low = i, h.Last()
			}
		}
	}
	if n > 1 {
		marks[at] = true
	}
	return marks
}

// healthSection lines up blocks whose keys may differ.
func healthSection(r *Run) section {
	s := section{Name: r.Name}
	for _, b := range r.Health {
		for _, k := range b.Keys {
			if !slices.Contains(s.Header, k) {
				s.Header = append(s.Header, k)
			}
		}
	}
	for _, b := range r.Health {
		row := make([]string, len(s.Header))
		for i, k := range s.Header {
			if at := slices.Index(b.Keys, k); at >= 0 {
				row[i] = b.Values[at]
			}
		}
		s.Rows = append(s.Rows, row)
	}
	return s
}

// configDiff lists the keys in which the runs' config.yaml differ, a column a
// run. Names and folders always differ and are left out.
func configDiff(runs []*Run) (header []string, rows [][]string) {
	if len(runs) < 2 {
		return nil, nil
	}
	var order []string
	values := make([]map[string]string, len(runs))
	for i, r := range runs {
		values[i] = map[string]string{}
		for key, v := range flatKeys(r.Config) {
			if _, ok := values[i][key]; !ok && i == 0 {
				order = append(order, key)
			}
			values[i][key] = v
		}
	}
	slices.Sort(order)
	for _, key := range order {
		row := []string{key}
		differs := false
		for i := range runs {
			row = append(row, values[i][key])
			differs = differs || values[i][key] != values[0][key]
		}
		if differs && key != "run_name" && key != "save_folder" {
			rows = append(rows, row)
		}
	}
	header = []string{"key"}
	for _, r := range runs {
		header = append(header, r.Name)
	}
	return header, rows
}

// flatKeys reads the two-space indented, one-value-a-line text of a resolved
// config.yaml as dotted keys; lists of texts are left out.
func flatKeys(text string) map[string]string {
	out := map[string]string{}
	var path []string
	for l := range strings.SplitSeq(text, "\n") {
		trimmed := strings.TrimLeft(l, " ")
		key, value, ok := strings.Cut(trimmed, ":")
		if !ok || strings.HasPrefix(trimmed, "-") || strings.HasPrefix(trimmed, "#") {
			continue
		}
		depth := (len(l) - len(trimmed)) / 2
		path = append(path[:min(depth, len(path))], key)
		if value = strings.TrimSpace(value); value != "" {
			out[strings.Join(path, ".")] = value
		}
	}
	return out
}
