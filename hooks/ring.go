package hooks

// ring is a queue that grows and does not allocate below its capacity.
type ring[E any] struct {
	buf     []E
	head, n int
}

func (r *ring[E]) len() int { return r.n }

func (r *ring[E]) reserve(n int) {
	if n <= len(r.buf) {
		return
	}
	buf := make([]E, n)
	for i := range r.n {
		buf[i] = r.buf[(r.head+i)%len(r.buf)]
	}
	r.buf, r.head = buf, 0
}

func (r *ring[E]) push(e E) {
	if r.n == len(r.buf) {
		r.reserve(max(8, 2*r.n))
	}
	r.buf[(r.head+r.n)%len(r.buf)] = e
	r.n++
}

func (r *ring[E]) pop() E {
	var zero E
	e := r.buf[r.head]
	r.buf[r.head] = zero
	r.head = (r.head + 1) % len(r.buf)
	r.n--
	return e
}
