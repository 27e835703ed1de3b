package streams

import (
	"fmt"

	"github.com/asteria-runtime/asteria/streams/internal/cuda"
)

// Product is the shape of a matrix product: see [BLAS.Gemm].
type Product = cuda.Product

// Update is the shape of a symmetric update: see [BLAS.Syrk].
type Update = cuda.Update

// Op says whether a matrix enters a product transposed.
type Op = cuda.Op

// How a matrix enters a product, and which triangle of a symmetric one is used.
const (
	NoTrans = cuda.N
	Trans   = cuda.T
	Lower   = cuda.Lower
	Upper   = cuda.Upper
)

// BLAS is cuBLAS on one stream: its calls are operations of the stream, in order
// with the others. Matrices are column-major in device or managed memory, and
// single precision is single, never TF32. One goroutine at a time.
type BLAS struct {
	s *Stream
	b *cuda.BLAS
}

// BLAS opens cuBLAS of CUDA 11, 12 or 13 for the stream. The error matches
// errors.ErrUnsupported where no such library is found.
func (s *Stream) BLAS() (*BLAS, error) {
	b := &BLAS{s: s}
	err := s.onDevice("cuBLAS", func(l *deviceLane) (err error) {
		b.b, err = cuda.OpenBLAS(l.handle)
		return err
	})
	if err != nil {
		return nil, err
	}
	return b, nil
}

// Library is the file that was loaded.
func (b *BLAS) Library() string { return b.b.Library() }

// Close gives the handle back; the stream's work must be done.
func (b *BLAS) Close() error {
	return b.s.onDevice("cuBLAS", func(*deviceLane) error { return b.b.Close() })
}

// Gemm enqueues C = alpha*op(A)*op(B) + beta*C in double or single precision.
func (b *BLAS) Gemm(p *Product, double bool) error {
	return b.s.onDevice("cuBLAS", func(*deviceLane) error { return b.b.Gemm(p, double) })
}

// Syrk enqueues C = alpha*A*Aᵀ + beta*C, or AᵀA, in one triangle of C.
func (b *BLAS) Syrk(u *Update, double bool) error {
	return b.s.onDevice("cuBLAS", func(*deviceLane) error { return b.b.Syrk(u, double) })
}

// Solver is cuSOLVER on one stream: as [BLAS], with its scratch on the device.
type Solver struct {
	s       *Stream
	v       *cuda.Solver
	scratch uintptr // work, then an int for the outcome
	size    int64   // of scratch, bytes
	outcome [4]byte
}

// Solver opens cuSOLVER of CUDA 11, 12 or 13 for the stream. The error matches
// errors.ErrUnsupported where no such library is found.
func (s *Stream) Solver() (*Solver, error) {
	v := &Solver{s: s}
	err := s.onDevice("cuSOLVER", func(l *deviceLane) (err error) {
		v.v, err = cuda.OpenSolver(l.handle)
		return err
	})
	if err != nil {
		return nil, err
	}
	return v, nil
}

// Library is the file that was loaded.
func (v *Solver) Library() string { return v.v.Library() }

// Close gives handle and scratch back; the stream's work must be done.
func (v *Solver) Close() error {
	return v.s.onDevice("cuSOLVER", func(l *deviceLane) error {
		err := v.v.Close()
		if v.scratch != 0 {
			if free := l.acc.driver.Free(v.scratch); err == nil {
				err = free
			}
		}
		v.scratch, v.size = 0, 0
		return err
	})
}

// infoBytes is what stands behind the work in scratch.
const infoBytes = 8

// room makes scratch for elements of work. It grows rarely; the memory it leaves
// may be in use, so the stream is waited for first.
func (v *Solver) room(l *deviceLane, elements int, double bool) (work, info uintptr, err error) {
	need := int64(elements) * 4
	if double {
		need *= 2
	}
	need = (need + infoBytes - 1) / infoBytes * infoBytes
	if need+infoBytes > v.size {
		if err := l.acc.driver.AwaitStream(l.handle); err != nil {
			return 0, 0, err
		}
		if v.scratch != 0 {
			if err := l.acc.driver.Free(v.scratch); err != nil {
				return 0, 0, err
			}
			v.scratch, v.size = 0, 0
		}
		a, err := l.acc.driver.AllocDevice(need + infoBytes)
		if err != nil {
			return 0, 0, err
		}
		v.scratch, v.size = a, need+infoBytes
	}
	return v.scratch, v.scratch + uintptr(need), nil
}

// finish waits for the stream and turns the outcome on the device into an error.
func (v *Solver) finish(l *deviceLane, what string, info uintptr) error {
	if err := l.acc.driver.Copy(address(v.outcome[:]), info, len(v.outcome), l.handle); err != nil {
		return err
	}
	if err := l.acc.driver.AwaitStream(l.handle); err != nil {
		return err
	}
	if n := int32(uint32(v.outcome[0]) | uint32(v.outcome[1])<<8 | uint32(v.outcome[2])<<16 | uint32(v.outcome[3])<<24); n != 0 {
		return &FactorizationError{Call: what, Info: int(n)}
	}
	return nil
}

// FactorizationError says that a matrix has no such factorization, or that its
// iteration did not end: Info is LAPACK's.
type FactorizationError struct {
	Call string
	Info int
}

// Error implements the error interface.
func (e *FactorizationError) Error() string {
	return fmt.Sprintf("streams: %s: info %d", e.Call, e.Info)
}

// Eigen decomposes the symmetric n×n a, given in its lower triangle, and waits:
// eigenvalues ascending in w, eigenvectors as the columns of a.
func (v *Solver) Eigen(n int, a uintptr, lda int, w uintptr, double bool) error {
	return v.s.onDevice("cuSOLVER", func(l *deviceLane) error {
		size, err := v.v.EigenSize(n, a, lda, w, double)
		if err != nil {
			return err
		}
		work, info, err := v.room(l, size, double)
		if err != nil {
			return err
		}
		if err := v.v.Eigen(n, a, lda, w, work, size, info, double); err != nil {
			return err
		}
		return v.finish(l, "syevd", info)
	})
}

// Cholesky factors the n×n a in place in one triangle, and waits. A matrix that is
// not positive definite is a [*FactorizationError].
func (v *Solver) Cholesky(fill cuda.Fill, n int, a uintptr, lda int, double bool) error {
	return v.s.onDevice("cuSOLVER", func(l *deviceLane) error {
		size, err := v.v.CholeskySize(fill, n, a, lda, double)
		if err != nil {
			return err
		}
		work, info, err := v.room(l, size, double)
		if err != nil {
			return err
		}
		if err := v.v.Cholesky(fill, n, a, lda, work, size, info, double); err != nil {
			return err
		}
		return v.finish(l, "potrf", info)
	})
}
