package invroot

import "math"

// secular solves 1 + rho*Σ z[i]²/(d[i]-λ) = 0, the eigenvalue equation of
// diag(d) + rho*z*zᵀ with ascending d and rho > 0 (Cuppen 1981). Between two
// neighbouring poles lies exactly one root. A root is kept as the nearer pole (origin)
// and its distance from it (offset), since only the distances λ-d[i] to full
// relative accuracy give orthogonal vectors (Gu and Eisenstat 1995).
type secular struct {
	d, z2  []float64
	rhoInv float64
	// tol bounds |f| relative to the sum of its terms' magnitudes.
	tol    float64
	set    kernelSet
	end    float64 // upper bound of the last root
	origin []float64
	offset []float64
}

// setup prepares for the k poles d with weights z2 = z².
func (s *secular) setup(rho float64) {
	sum := 0.0
	for _, v := range s.z2 {
		sum += v
	}
	k := len(s.d)
	s.rhoInv = 1 / rho
	s.end = s.d[k-1] + rho*sum*(1+0x1p-40)
	if s.end == s.d[k-1] {
		s.end = math.Nextafter(s.end, math.Inf(1))
	}
}

// point is the equation's value at one offset: psi sums the poles up to the
// root's left neighbour, phi those beyond; the slopes are their derivatives.
type point struct {
	psi, phi, psiSlope, phiSlope, f float64
}

// eval evaluates the equation for root j at origin+offset.
func (s *secular) eval(j int, origin, offset float64) point {
	var p point
	p.psi, p.psiSlope = s.set.secular(s.d[:j+1], s.z2[:j+1], origin, offset)
	if j+1 < len(s.d) {
		p.phi, p.phiSlope = s.set.secular(s.d[j+1:], s.z2[j+1:], origin, offset)
	}
	p.f = s.rhoInv + p.psi + p.phi
	return p
}

// bracket is the interval of offsets that holds the root: f < 0 at lo, > 0 at hi.
type bracket struct{ lo, hi float64 }

// narrow moves one end to y: the equation rises between its poles.
func (b *bracket) narrow(y, f float64) {
	if f < 0 {
		b.lo = y
	} else {
		b.hi = y
	}
}

// clip returns y, or the middle when y is not strictly inside.
func (b *bracket) clip(y float64) float64 {
	if y > b.lo && y < b.hi {
		return y
	}
	return b.lo + (b.hi-b.lo)/2
}

// solve finds root j.
func (s *secular) solve(j int) {
	left, right := s.d[j], s.end
	if j+1 < len(s.d) {
		right = s.d[j+1]
	}
	gap := right - left
	origin, y, b := s.start(j, left, gap)
	d1, d2 := left-origin, right-origin
	if j+1 == len(s.d) {
		d2 = gap
	}
	for range 100 {
		p := s.eval(j, origin, y)
		scale := s.rhoInv + 8*(p.phi-p.psi) + math.Abs(y)*(p.psiSlope+p.phiSlope)
		if math.Abs(p.f) <= s.tol*scale {
			break
		}
		b.narrow(y, p.f)
		next := b.clip(y + step(p, d1-y, d2-y))
		if math.Abs(next-y) <= 0x1p-53*math.Abs(y) || b.hi-b.lo <= 0x1p-53*math.Abs(y) {
			y = next
			break
		}
		y = next
	}
	if y == 0 { // a root on its pole has no vector; the smallest distance has
		y = math.Copysign(0x1p-100, b.hi+b.lo)
	}
	s.origin[j], s.offset[j] = origin, y
}

// start evaluates the middle of the interval to choose the origin, and solves
// the equation with all poles but the two neighbours frozen there (LAPACK laed4).
func (s *secular) start(j int, left, gap float64) (origin, y float64, b bracket) {
	mid := gap / 2
	p := s.eval(j, left, mid)
	last := j+1 == len(s.d)
	if last {
		if p.f < 0 {
			b = bracket{mid, gap}
		} else {
			b = bracket{0, mid}
		}
		return left, b.clip(mid + step(p, -mid, gap-mid)), b
	}
	zl, zr := s.z2[j], s.z2[j+1]
	c := p.f + (zl-zr)/mid
	if p.f >= 0 {
		origin, b = left, bracket{0, mid}
		y = quadratic(c, c*gap+zl+zr, zl*gap)
	} else {
		origin, b = left+gap, bracket{-mid, 0}
		if origin != s.d[j+1] {
			origin = s.d[j+1]
		}
		y = quadratic(c, -c*gap+zl+zr, -zr*gap)
	}
	return origin, b.clip(y), b
}

// quadratic returns the root of c*y² - a*y + b = 0 that laed4 chooses.
func quadratic(c, a, b float64) float64 {
	q := math.Sqrt(max(0, a*a-4*b*c))
	if a <= 0 {
		return (a - q) / (2 * c)
	}
	return 2 * b / (a + q)
}

// step returns the correction of the middle-way scheme (Li 1994): psi and phi are
// replaced by rational functions with poles at distances d1 ≤ 0 ≤ d2 that match
// value and slope.
func step(p point, d1, d2 float64) float64 {
	a := (d1+d2)*p.f - d1*d2*(p.psiSlope+p.phiSlope)
	b := d1 * d2 * p.f
	c := p.f - d1*p.psiSlope - d2*p.phiSlope
	return quadratic(c, a, b)
}
