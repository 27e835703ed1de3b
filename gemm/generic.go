package gemm

func gemmRef[T Float](ta, tb bool, m, n, k int, alpha T, a []T, lda int, b []T, ldb int, beta T, c []T, ldc int) {
	for i := range m {
		for j := range n {
			var s T
			for l := range k {
				x := i*lda + l
				if ta {
					x = l*lda + i
				}
				y := l*ldb + j
				if tb {
					y = j*ldb + l
				}
				s += a[x] * b[y]
			}
			s *= alpha
			if beta != 0 {
				s += beta * c[i*ldc+j]
			}
			c[i*ldc+j] = s
		}
	}
}

func syrkRef[T Float](trans bool, n, k int, alpha T, a []T, lda int, beta T, c []T, ldc int) {
	for i := range n {
		for j := range i + 1 {
			var s T
			for l := range k {
				if trans {
					s += a[l*lda+i] * a[l*lda+j]
				} else {
					s += a[i*lda+l] * a[j*lda+l]
				}
			}
			s *= alpha
			if beta != 0 {
				s += beta * c[i*ldc+j]
			}
			c[i*ldc+j] = s
		}
	}
}
