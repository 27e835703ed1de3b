package nvmepage

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"
)

// calls is a file in memory that moves runs, and notes what each call was about. No
// call moves what lies at or behind cut.
type calls struct {
	mu   sync.Mutex
	data []byte
	cut  int
	list []int // requests in each call
}

func (f *calls) ReadAt([]byte, int64) (int, error)  { return 0, errors.ErrUnsupported }
func (f *calls) WriteAt([]byte, int64) (int, error) { return 0, errors.ErrUnsupported }
func (f *calls) Allocate(int64, int64) error        { return nil }
func (f *calls) Size() (int64, error)               { return int64(len(f.data)), nil }
func (f *calls) Sync() error                        { return nil }
func (f *calls) Close() error                       { return nil }

func (f *calls) moveRun(first *request, _ *runVector) (n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	count, at := 0, int(first.off)
	for r := first; r != nil; r = r.next {
		count++
		for _, piece := range [][]byte{r.head, r.buf} {
			file := f.data[min(at, f.cut):min(at+len(piece), f.cut)]
			if r.write {
				n += copy(file, piece)
			} else {
				n += copy(piece, file)
			}
			at += len(piece)
		}
	}
	f.list = append(f.list, count)
	return n, nil
}

// part is a request for n bytes of f at off.
func part(f File, off, n int, write bool) *request {
	buf := make([]byte, n)
	for i := range buf {
		if write {
			buf[i] = byte(off + i)
		}
	}
	return &request{
		file: f, name: "f", head: buf[:n/4], buf: buf[n/4:], off: int64(off), write: write,
		dst: buf, over: make(chan struct{}, 1),
	}
}

// Requests that follow each other go to the system together, up to the bounds of a
// run; a gap, the other direction and another file end it, and what waits for more
// goes when somebody waits for it.
func TestRequestsThatFollowEachOtherAreOneCall(t *testing.T) {
	const small = 16 << 10
	type ask struct {
		file, at int
		size     int
		write    bool
	}
	row := func(n, size int) (list []ask) {
		for i := range n {
			list = append(list, ask{0, i * size, size, false})
		}
		return list
	}
	for name, tc := range map[string]struct {
		asks []ask
		want []int // requests in each call, over both files
	}{
		"one":       {row(1, small), []int{1}},
		"some":      {row(5, small), []int{5}},
		"by bytes":  {row(6, 100<<10), []int{2, 2, 2}},
		"by number": {row(20, 4), []int{16, 4}},
		"large":     {row(2, 300<<10), []int{1, 1}},
		"gap":       {[]ask{{0, 0, small, false}, {0, 2 * small, small, false}}, []int{1, 1}},
		"direction": {[]ask{{0, 0, small, false}, {0, small, small, true}}, []int{1, 1}},
		"files":     {[]ask{{0, 0, small, false}, {1, small, small, false}}, []int{1, 1}},
	} {
		files := [2]*calls{}
		for i := range files {
			files[i] = &calls{data: make([]byte, 1<<20), cut: 1 << 20}
		}
		e := newPoolEngine(1)
		var requests []*request
		for _, a := range tc.asks {
			r := part(files[a.file], a.at, a.size, a.write)
			requests = append(requests, r)
			e.submit(r)
		}
		for i, r := range requests {
			if err := r.wait(e); err != nil {
				t.Errorf("%s: request %d: %v", name, i, err)
			}
		}
		e.close()
		if got := fmt.Sprint(append(files[0].list, files[1].list...)); got != fmt.Sprint(tc.want) {
			t.Errorf("%s: requests in each call %s, want %v", name, got, tc.want)
		}
	}
}

// What a run does not move is the error of the requests that it concerns, and of no
// other: those have their data.
func TestARunThatFailsIsRepeatedOneByOne(t *testing.T) {
	const n, count = 1 << 10, 8
	const cut = 5*n + n/2
	for _, write := range []bool{false, true} {
		f := &calls{data: make([]byte, n*count), cut: cut}
		for i := range f.data {
			f.data[i] = byte(i)
		}
		e := newPoolEngine(2)
		var requests []*request
		for i := range count {
			r := part(f, i*n, n, write)
			requests = append(requests, r)
			e.submit(r)
		}
		for i, r := range requests {
			dst, err := r.dst, r.wait(e)
			if failed := (i+1)*n > cut; (err != nil) != failed {
				t.Errorf("write %v, request %d: %v", write, i, err)
			} else if !failed && !write && !bytes.Equal(dst, f.data[i*n:(i+1)*n]) {
				t.Errorf("request %d: wrong data", i)
			}
		}
		e.close()
	}
}
