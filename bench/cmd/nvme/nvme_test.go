package main

import (
	"strings"
	"testing"
)

func TestRateOfReadsFiosOutput(t *testing.T) {
	const good = "note: both iodepth >= 1 and synchronous I/O engine are selected\n" +
		`{"jobs":[{"error":0,"read":{"bw_bytes":0},"write":{"bw_bytes":123456}}]}`
	if rate, err := rateOf([]byte(good), "write"); err != nil || rate != 123456 {
		t.Errorf("rate %v, %v", rate, err)
	}
	for name, text := range map[string]string{
		"no rate":  strings.Replace(good, "123456", "0", 1),
		"an error": strings.Replace(good, `"error":0`, `"error":5`, 1),
		"no job":   `{"jobs":[]}`,
		"no JSON":  "fio: engine io_uring not loadable",
	} {
		if _, err := rateOf([]byte(text), "write"); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestTheRatioIsTheMedianOverRounds(t *testing.T) {
	r := row{Ours: []float64{1, 9, 4}, Fio: []float64{2, 3, 4}}
	if got := r.ratio(); got != 1 {
		t.Errorf("ratio %v, want the median of 0.5, 3 and 1", got)
	}
	if got := median([]float64{3, 1, 2, 10}); got != 2.5 {
		t.Errorf("median %v, want 2.5", got)
	}
	if got := (&row{Ours: []float64{1}}).ratio(); got != 0 {
		t.Errorf("ratio without fio %v, want 0", got)
	}
}

func TestOurSideMovesWhatItSays(t *testing.T) {
	for _, e := range []string{"io_uring", "pool"} {
		engine := engineUring
		if e == "pool" {
			engine = enginePool
		}
		o, err := openOurs(t.TempDir(), 0, 64<<10, 2, 1<<20, engine, memory([]int64{64}, []int64{2}))
		if err != nil {
			t.Skip(err)
		}
		if rate, err := o.run("read", 2<<20); err != nil || rate <= 0 {
			t.Errorf("%s: rate %v, %v", e, rate, err)
		}
		if st := o.store.Stats(); st.Objects != 16 || st.Reads != 64 || st.Writes != 32 || st.Corrupt != 0 {
			t.Errorf("%s: %+v", e, st)
		}
		if err := o.close(); err != nil {
			t.Error(err)
		}
	}
}
