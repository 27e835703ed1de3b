package data

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
)

// Span is the part of one document that one instance of a batch holds. Positions
// count tokens from the start of the token file, so that they can be compared
// with its list of documents and with other tools.
type Span struct {
	Row      int    // row of the global batch
	Instance uint32 // number of the instance in the data set
	File     string // token file
	Start    int64  // first token, counted in the file
	End      int64  // one past the last
	Document int64  // number of the document in the file, from 0
	DocStart int64  // the whole document, counted in the file
	DocEnd   int64
	ID       string // from the list of documents; "" without one
	Path     string // likewise: where the text came from
	Line     int64  // likewise, from 1; 0 when not known
}

// Inspect tells which documents global batch k holds, over all ranks, in the
// order of its rows. Ends of documents come from the token file's list of
// documents, or else from its EOS tokens; without either, each row is one span
// of document −1.
func (l *Loader) Inspect(k int64) ([]Span, error) {
	row, _, err := l.schedule.row(k)
	if err != nil {
		return nil, err
	}
	byFile := map[int][]Span{}
	rows := map[uint32][]int{} // an order that was padded has instances twice
	for i, instance := range row {
		rows[instance] = append(rows[instance], i)
		if len(rows[instance]) > 1 {
			continue
		}
		for _, p := range l.set.of(nil, int64(instance)) {
			byFile[p.file] = append(byFile[p.file], Span{Row: i, Instance: instance, File: l.files[p.file].path,
				Start: p.start, End: p.end, Document: -1, DocStart: p.start, DocEnd: p.end})
		}
	}
	var spans []Span
	for file, wanted := range byFile {
		found, err := l.spansIn(&l.files[file], wanted)
		if err != nil {
			return nil, err
		}
		for _, s := range found {
			for _, s.Row = range rows[s.Instance] {
				spans = append(spans, s)
			}
		}
	}
	slices.SortFunc(spans, func(a, b Span) int {
		return cmp.Or(cmp.Compare(a.Row, b.Row), cmp.Compare(a.File, b.File), cmp.Compare(a.Start, b.Start))
	})
	return spans, nil
}

// spansIn cuts the wanted extents of one file at the ends of its documents.
func (l *Loader) spansIn(f *tokenFile, wanted []Span) ([]Span, error) {
	slices.SortFunc(wanted, func(a, b Span) int { return cmp.Compare(a.Start, b.Start) })
	c := cutter{wanted: wanted}
	err := readDocuments(f, c.add)
	if errors.Is(err, fs.ErrNotExist) {
		if l.vocab.eos < 0 {
			return wanted, nil
		}
		err = l.scanDocuments(f, c.add)
	}
	return append(c.spans, c.rest()...), err
}

// scanDocuments calls visit for the documents that EOS tokens delimit, and for
// the tokens after the last.
func (l *Loader) scanDocuments(f *tokenFile, visit func(Span) bool) error {
	d := docFinder{eos: int32(l.vocab.eos), bos: int32(l.vocab.bos)}
	if err := l.reader.scan(f, extent{0, f.tokens}, l.vocab.natural, d.add); err != nil {
		return err
	}
	docs := d.finish()
	if d.start < f.tokens {
		docs = append(docs, extent{d.start, f.tokens})
	}
	for i, e := range docs {
		if !visit(Span{Document: int64(i), DocStart: e.start, DocEnd: e.end}) {
			break
		}
	}
	return nil
}

// cutter intersects documents, which come in order, with wanted extents, sorted
// by start, of which no two overlap.
type cutter struct {
	wanted []Span
	spans  []Span
}

// add takes the next document and reports whether later ones are of interest.
func (c *cutter) add(doc Span) bool {
	if doc.DocStart == doc.DocEnd {
		return len(c.wanted) > 0 // holds no token
	}
	for len(c.wanted) > 0 && c.wanted[0].Start < doc.DocEnd {
		w := &c.wanted[0]
		s := *w
		s.Document, s.DocStart, s.DocEnd, s.ID, s.Path, s.Line = doc.Document, doc.DocStart, doc.DocEnd, doc.ID, doc.Path, doc.Line
		if w.Start < doc.DocStart { // lists of other tools may have gaps: tokens before the document that no document holds
			gap := *w
			gap.End = min(w.End, doc.DocStart)
			c.spans = append(c.spans, gap)
			w.Start = gap.End
			if w.Start == w.End {
				c.wanted = c.wanted[1:]
				continue
			}
			s.Start = w.Start
		}
		s.End = min(w.End, doc.DocEnd)
		c.spans = append(c.spans, s)
		w.Start = s.End
		if w.Start == w.End {
			c.wanted = c.wanted[1:]
		}
	}
	return len(c.wanted) > 0
}

// rest is what lies after the last document.
func (c *cutter) rest() []Span { return c.wanted }

// readDocuments calls visit for each line of a token file's list of documents,
// until it returns false. A file without a list is fs.ErrNotExist.
func readDocuments(f *tokenFile, visit func(Span) bool) error {
	path := DocumentsPath(f.path)
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("data: %w", err)
	}
	defer file.Close()
	zip, err := gzip.NewReader(bufio.NewReaderSize(file, 1<<16))
	if err != nil {
		return fmt.Errorf("data: %s: %w", path, err)
	}
	if err := parseDocuments(zip, f.tokens, visit); err != nil {
		return fmt.Errorf("data: %s: %w", path, err)
	}
	return nil
}

// parseDocuments reads lines start,end[,id[,path[,line]]]; more columns are not
// looked at. Documents must follow each other inside the file's tokens.
func parseDocuments(in io.Reader, tokens int64, visit func(Span) bool) error {
	r := csv.NewReader(in)
	r.FieldsPerRecord = -1
	r.ReuseRecord = true
	r.LazyQuotes = true
	last := int64(0)
	for n := int64(0); ; n++ {
		rec, err := r.Read()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		doc, err := documentOf(rec)
		if err != nil {
			return fmt.Errorf("line %d: %w", n+1, err)
		}
		if doc.DocStart < last || doc.DocEnd < doc.DocStart || doc.DocEnd > tokens {
			return fmt.Errorf("line %d: document %d to %d, allowed ordered extents within %d to %d", n+1, doc.DocStart, doc.DocEnd, last, tokens)
		}
		last = doc.DocEnd
		doc.Document = n
		if !visit(doc) {
			return nil
		}
	}
}

// documentOf reads one line of a list. Start and end are required; the rest is
// for people, and other tools write it differently.
func documentOf(rec []string) (Span, error) {
	if len(rec) < 2 {
		return Span{}, fmt.Errorf("%d columns, allowed start,end,id,path,line", len(rec))
	}
	start, err := strconv.ParseInt(rec[0], 10, 64)
	if err != nil {
		return Span{}, fmt.Errorf("start: %w", err)
	}
	end, err := strconv.ParseInt(rec[1], 10, 64)
	if err != nil {
		return Span{}, fmt.Errorf("end: %w", err)
	}
	d := Span{DocStart: start, DocEnd: end}
	if len(rec) > 2 {
		d.ID = rec[2]
	}
	if len(rec) > 3 {
		d.Path = rec[3]
	}
	if len(rec) > 4 {
		d.Line, _ = strconv.ParseInt(rec[4], 10, 64) // other tools leave it out or write text
	}
	return d, nil
}
