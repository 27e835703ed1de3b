package cuda

import (
	"math"
	"testing"
)

// A number that is none must survive whatever comes after it.
func TestLargestKeepsWhatIsNotANumber(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{nil, 0}, {[]float64{1, 3, 2}, 3}, {[]float64{nan, 1}, nan}, {[]float64{1, nan, 2}, nan}, {[]float64{2, nan}, nan},
	} {
		if got := largest(c.values); got != c.want && !(math.IsNaN(got) && math.IsNaN(c.want)) {
			t.Errorf("largest of %v is %v, want %v", c.values, got, c.want)
		}
	}
}
