package data

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/asteria-runtime/asteria/trainer-olmo/tokenizer"
)

// TokenizeOptions say what [Tokenize] reads and writes. The zero value of each
// optional field is the default.
type TokenizeOptions struct {
	Inputs    []string            // text files and folders of them, see [IsText]
	Output    string              // folder for the token files; made when missing
	Tokenizer tokenizer.Tokenizer // must have an EOS, unless NoEOS
	TextKey   string              // key of the text in JSON lines ["text"]
	IDKey     string              // key of the id in JSON lines ["id"]
	Strip     bool                // cut white space off both ends of a document, as the legacy OLMo script
	NoEOS     bool                // write no EOS after documents
	MaxTokens int64               // start a new file before a document would pass this many tokens; 0 = one file
	Threads   int                 // goroutines that encode [1]
	Overwrite bool                // replace token files that the folder holds
	BaseDir   string              // paths in the list of documents are relative to it; "" = as given
}

// TokenizeReport says what was written.
type TokenizeReport struct {
	Files     []string // token files, in order
	Documents int64
	Empty     int64 // documents left out because they have no token
	Tokens    int64 // EOS included
	Bytes     int64 // of text
	Width     Width
}

// validate reports all faults that can be seen without reading an input.
func (o TokenizeOptions) validate() error {
	var errs []error
	if len(o.Inputs) == 0 {
		errs = append(errs, errors.New("data: tokenize: no input"))
	}
	if o.Output == "" {
		errs = append(errs, errors.New("data: tokenize: no output folder"))
	}
	switch {
	case o.Tokenizer == nil:
		errs = append(errs, errors.New("data: tokenize: no tokenizer"))
	case o.Tokenizer.EOS() < 0 && !o.NoEOS:
		errs = append(errs, fmt.Errorf("data: tokenize: tokenizer %s names no end-of-document token", o.Tokenizer.Name()))
	}
	if o.MaxTokens < 0 || o.Threads < 0 {
		errs = append(errs, fmt.Errorf("data: tokenize: max tokens %d, threads %d; allowed 0 and more", o.MaxTokens, o.Threads))
	}
	return errors.Join(errs...)
}

// Tokenize writes the documents of all inputs, in order, to token files of the
// smallest width for the tokenizer's vocabulary: part-00000.npy and so on, each
// with its list of documents (.csv.gz) and its [Meta] (.json). EOS follows each
// document; documents without a token are left out. The same inputs give the
// same bytes with any number of threads. Files appear under their names when
// all are complete; a failed or stopped run leaves none.
func Tokenize(ctx context.Context, o TokenizeOptions) (TokenizeReport, error) {
	if err := o.validate(); err != nil {
		return TokenizeReport{}, err
	}
	files, err := listInputs(o.Inputs)
	if err != nil {
		return TokenizeReport{}, err
	}
	return o.run(ctx, files)
}

// run is Tokenize for a list of files. Whatever goes wrong, the temporary folder
// is removed; only commit gives files their names.
func (o TokenizeOptions) run(ctx context.Context, files []string) (report TokenizeReport, err error) {
	if err := os.MkdirAll(o.Output, 0o777); err != nil {
		return report, fmt.Errorf("data: %w", err)
	}
	if old, _ := filepath.Glob(filepath.Join(o.Output, "part-*.npy")); len(old) > 0 && !o.Overwrite {
		return report, fmt.Errorf("data: tokenize: %s holds %s already; choose another folder, or overwrite", o.Output, filepath.Base(old[0]))
	}
	w, err := newPartWriter(o)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, w.discard()) }()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if err := o.pipeline(ctx, stop, files, w); err != nil {
		return report, err
	}
	if w.report.Tokens == 0 {
		return report, fmt.Errorf("data: tokenize: no token in %d files", len(files))
	}
	return w.commit()
}

// batchBytes is how much text is handed to a worker at a time: enough that the
// channels cost nothing, little enough that a few jobs a thread fit a cache.
const batchBytes = 1 << 18

// job is some documents and, once done is closed, their ids.
type job struct {
	docs []document
	size int // bytes of text
	ids  []uint32
	ends []int // ids of document i end at ends[i], EOS not included
	done chan struct{}
}

// pipeline reads documents in one goroutine, encodes jobs in Threads others and
// writes them here, in the order in which they were read. It returns when all
// goroutines have ended.
//
// Note: order and end. Each job goes into two channels: order, which the writer
// empties in sequence, and work, from which any worker takes it. The writer waits
// for the job's own done channel, so that what is written does not depend on who
// was faster. The bound of order limits the text in memory. Nothing deadlocks:
// the writer takes every job until order is closed, also after an error, and
// every job in order is also in work, whose workers run until it is closed; both
// are closed by the reader, which stops at the next job once the context ends.
func (o TokenizeOptions) pipeline(ctx context.Context, stop context.CancelFunc, files []string, w *partWriter) error {
	threads := max(o.Threads, 1)
	work := make(chan *job, threads)
	order := make(chan *job, 2*threads)
	var wg sync.WaitGroup
	var readErr error
	wg.Go(func() {
		defer close(order)
		defer close(work)
		readErr = o.read(ctx, files, work, order)
	})
	for range threads {
		tok := o.Tokenizer.Clone()
		wg.Go(func() {
			for j := range work {
				j.encode(tok, o.Strip)
			}
		})
	}
	var writeErr error
	for j := range order {
		<-j.done
		if writeErr == nil {
			if writeErr = w.write(j); writeErr != nil {
				stop()
			}
		}
	}
	wg.Wait()
	if writeErr != nil {
		return writeErr
	}
	return readErr
}

// read cuts the documents into jobs and gives each to the workers and to the
// writer.
func (o TokenizeOptions) read(ctx context.Context, files []string, work, order chan<- *job) error {
	j := &job{done: make(chan struct{})}
	send := func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		order <- j // the writer takes every job, also after an error
		work <- j
		j = &job{done: make(chan struct{})}
		return nil
	}
	for _, path := range files {
		err := o.eachDocument(path, o.shown(path), func(d document) error {
			j.docs = append(j.docs, d)
			j.size += len(d.text)
			if j.size < batchBytes {
				return nil
			}
			return send()
		})
		if err != nil {
			return err
		}
	}
	return send()
}

// shown is how the list of documents names a file.
func (o TokenizeOptions) shown(path string) string {
	if o.BaseDir != "" {
		if rel, err := filepath.Rel(o.BaseDir, path); err == nil {
			return filepath.ToSlash(rel)
		}
	}
	return path
}

// encode runs in a worker, which has a tokenizer of its own.
func (j *job) encode(tok tokenizer.Tokenizer, strip bool) {
	defer close(j.done)
	for _, d := range j.docs {
		text := d.text
		if strip {
			text = bytes.TrimSpace(text)
		}
		j.ids = tok.Encode(j.ids, text)
		j.ends = append(j.ends, len(j.ids))
	}
}
