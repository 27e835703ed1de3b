package streams

import "testing"

func BenchmarkDo(b *testing.B) {
	d := Host()
	defer d.Close()
	s, err := d.NewStream(Normal)
	if err != nil {
		b.Fatal(err)
	}
	f := func() error { return nil }
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Do(f); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Synchronize(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkRoundTrip is what a step pays that waits for an idle stream.
func BenchmarkRoundTrip(b *testing.B) {
	d := Host()
	defer d.Close()
	s, err := d.NewStream(Normal)
	if err != nil {
		b.Fatal(err)
	}
	f := func() error { return nil }
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Do(f); err != nil {
			b.Fatal(err)
		}
		if err := s.Synchronize(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
