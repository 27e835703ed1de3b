package cuda

import "unsafe"

// The file names of cuBLAS and cuSOLVER in CUDA 13, 12 and 11, newest first, by the
// loader's paths and where the toolkit puts them.
var (
	blasNames   = withToolkit("libcublas.so.13", "libcublas.so.12", "libcublas.so.11")
	solverNames = withToolkit("libcusolver.so.12", "libcusolver.so.11")
)

func withToolkit(names ...string) []string {
	for _, n := range names {
		names = append(names, "/usr/local/cuda/lib64/"+n)
	}
	return names
}

// Op says whether a matrix enters a product transposed.
type Op int

// The ops, as cuBLAS numbers them.
const (
	N Op = 0
	T Op = 1
)

// Fill names the triangle that is referenced.
type Fill int

// The triangles, as cuBLAS and cuSOLVER number them.
const (
	Lower Fill = 0
	Upper Fill = 1
)

// blasStatus lists cublasStatus_t.
var blasStatus = map[int]string{
	1: "CUBLAS_STATUS_NOT_INITIALIZED", 3: "CUBLAS_STATUS_ALLOC_FAILED", 7: "CUBLAS_STATUS_INVALID_VALUE",
	8: "CUBLAS_STATUS_ARCH_MISMATCH", 11: "CUBLAS_STATUS_MAPPING_ERROR", 13: "CUBLAS_STATUS_EXECUTION_FAILED",
	14: "CUBLAS_STATUS_INTERNAL_ERROR", 15: "CUBLAS_STATUS_NOT_SUPPORTED", 16: "CUBLAS_STATUS_LICENSE_ERROR",
}

// solverStatus lists cusolverStatus_t.
var solverStatus = map[int]string{
	1: "CUSOLVER_STATUS_NOT_INITIALIZED", 2: "CUSOLVER_STATUS_ALLOC_FAILED", 3: "CUSOLVER_STATUS_INVALID_VALUE",
	4: "CUSOLVER_STATUS_ARCH_MISMATCH", 6: "CUSOLVER_STATUS_EXECUTION_FAILED", 7: "CUSOLVER_STATUS_INTERNAL_ERROR",
	8: "CUSOLVER_STATUS_MATRIX_TYPE_NOT_SUPPORTED", 9: "CUSOLVER_STATUS_NOT_SUPPORTED",
}

func libraryCheck(library, function string, status int, names map[int]string) error {
	if status == 0 {
		return nil
	}
	name := names[status]
	if name == "" {
		name = "unknown status"
	}
	return &Error{Call: function, Code: status, Name: name, Text: library + " says no more"}
}

// BLAS is a handle of cuBLAS that works on one stream. Matrices are column-major.
type BLAS struct {
	library string
	handle  uintptr
	scalars [2]float64 // alpha and beta of the call in progress, which reads them before it returns

	create, destroy, setStream, setMathMode uintptr
	sgemm, dgemm, ssyrk, dsyrk              uintptr
}

// OpenBLAS loads cuBLAS and makes a handle in the current context, bound to stream
// s. Single precision is single: TF32 is off.
func OpenBLAS(s uintptr) (*BLAS, error) {
	handle, name, err := open(blasNames...)
	if err != nil {
		return nil, err
	}
	b := &BLAS{library: name}
	err = resolve(handle, name, []symbol{
		need(&b.create, "cublasCreate_v2"), need(&b.destroy, "cublasDestroy_v2"),
		need(&b.setStream, "cublasSetStream_v2"), need(&b.setMathMode, "cublasSetMathMode"),
		need(&b.sgemm, "cublasSgemm_v2"), need(&b.dgemm, "cublasDgemm_v2"),
		need(&b.ssyrk, "cublasSsyrk_v2"), need(&b.dsyrk, "cublasDsyrk_v2"),
	})
	if err != nil {
		return nil, err
	}
	if err := b.check("cublasCreate_v2", call(b.create, uintptr(unsafe.Pointer(&b.handle)))); err != nil {
		return nil, err
	}
	const defaultMath = 0 // neither TF32 nor half precision inside a single-precision product
	if err := b.check("cublasSetMathMode", plain(b.setMathMode, b.handle, defaultMath)); err != nil {
		return nil, err
	}
	return b, b.check("cublasSetStream_v2", plain(b.setStream, b.handle, s))
}

// Library is the file that was loaded.
func (b *BLAS) Library() string { return b.library }

func (b *BLAS) check(function string, status int) error {
	return libraryCheck("cuBLAS", function, status, blasStatus)
}

// Close gives the handle back.
func (b *BLAS) Close() error { return b.check("cublasDestroy_v2", plain(b.destroy, b.handle)) }

// scalar stores x for the call in progress and returns where: as float or double.
func (b *BLAS) scalar(i int, x float64, double bool) uintptr {
	if double {
		b.scalars[i] = x
	} else {
		*(*float32)(unsafe.Pointer(&b.scalars[i])) = float32(x)
	}
	return uintptr(unsafe.Pointer(&b.scalars[i]))
}

// Product is the shape of C = alpha*op(A)*op(B) + beta*C, op(A) m×k, op(B) k×n.
type Product struct {
	TransA, TransB Op
	M, N, K        int
	Alpha, Beta    float64
	A, B, C        uintptr
	LDA, LDB, LDC  int
}

// Gemm enqueues a product, in double precision or single.
func (b *BLAS) Gemm(p *Product, double bool) error {
	f, name := b.sgemm, "cublasSgemm_v2"
	if double {
		f, name = b.dgemm, "cublasDgemm_v2"
	}
	return b.check(name, plain(f, b.handle, uintptr(p.TransA), uintptr(p.TransB), uintptr(p.M), uintptr(p.N), uintptr(p.K),
		b.scalar(0, p.Alpha, double), p.A, uintptr(p.LDA), p.B, uintptr(p.LDB), b.scalar(1, p.Beta, double), p.C, uintptr(p.LDC)))
}

// Update is the shape of C = alpha*A*Aᵀ + beta*C, or AᵀA with Trans, in one
// triangle of the n×n C.
type Update struct {
	Fill        Fill
	Trans       Op
	N, K        int
	Alpha, Beta float64
	A, C        uintptr
	LDA, LDC    int
}

// Syrk enqueues a symmetric update, in double precision or single.
func (b *BLAS) Syrk(u *Update, double bool) error {
	f, name := b.ssyrk, "cublasSsyrk_v2"
	if double {
		f, name = b.dsyrk, "cublasDsyrk_v2"
	}
	return b.check(name, plain(f, b.handle, uintptr(u.Fill), uintptr(u.Trans), uintptr(u.N), uintptr(u.K),
		b.scalar(0, u.Alpha, double), u.A, uintptr(u.LDA), b.scalar(1, u.Beta, double), u.C, uintptr(u.LDC)))
}

// Solver is a handle of cuSOLVER that works on one stream. Matrices are
// column-major; what they need beside them is allocated by the caller.
type Solver struct {
	library string
	handle  uintptr

	create, destroy, setStream uintptr
	syevdSize, syevd           [2]uintptr // single, double
	potrfSize, potrf           [2]uintptr
}

// OpenSolver loads cuSOLVER and makes a handle in the current context.
func OpenSolver(s uintptr) (*Solver, error) {
	handle, name, err := open(solverNames...)
	if err != nil {
		return nil, err
	}
	v := &Solver{library: name}
	symbols := []symbol{
		need(&v.create, "cusolverDnCreate"), need(&v.destroy, "cusolverDnDestroy"), need(&v.setStream, "cusolverDnSetStream"),
	}
	for i, letter := range []string{"S", "D"} {
		symbols = append(symbols,
			need(&v.syevdSize[i], "cusolverDn"+letter+"syevd_bufferSize"), need(&v.syevd[i], "cusolverDn"+letter+"syevd"),
			need(&v.potrfSize[i], "cusolverDn"+letter+"potrf_bufferSize"), need(&v.potrf[i], "cusolverDn"+letter+"potrf"))
	}
	if err := resolve(handle, name, symbols); err != nil {
		return nil, err
	}
	if err := v.check("cusolverDnCreate", call(v.create, uintptr(unsafe.Pointer(&v.handle)))); err != nil {
		return nil, err
	}
	return v, v.check("cusolverDnSetStream", plain(v.setStream, v.handle, s))
}

// Library is the file that was loaded.
func (v *Solver) Library() string { return v.library }

func (v *Solver) check(function string, status int) error {
	return libraryCheck("cuSOLVER", function, status, solverStatus)
}

// Close gives the handle back.
func (v *Solver) Close() error { return v.check("cusolverDnDestroy", plain(v.destroy, v.handle)) }

func index(double bool) int {
	if double {
		return 1
	}
	return 0
}

// EigenSize returns how many elements of work Eigen needs.
func (v *Solver) EigenSize(n int, a uintptr, lda int, w uintptr, double bool) (int, error) {
	const vectors = 1
	var size int32
	status := call(v.syevdSize[index(double)], v.handle, vectors, uintptr(Lower), uintptr(n), a, uintptr(lda), w, uintptr(unsafe.Pointer(&size)))
	return int(size), v.check("cusolverDnXsyevd_bufferSize", status)
}

// Eigen enqueues the eigendecomposition of the symmetric A in its lower triangle:
// eigenvalues ascending in w, eigenvectors as the columns of A. info, an int on the
// device, is 0 on success.
func (v *Solver) Eigen(n int, a uintptr, lda int, w, work uintptr, size int, info uintptr, double bool) error {
	const vectors = 1
	return v.check("cusolverDnXsyevd", plain(v.syevd[index(double)], v.handle, vectors, uintptr(Lower), uintptr(n), a, uintptr(lda), w, work, uintptr(size), info))
}

// CholeskySize returns how many elements of work Cholesky needs.
func (v *Solver) CholeskySize(f Fill, n int, a uintptr, lda int, double bool) (int, error) {
	var size int32
	status := call(v.potrfSize[index(double)], v.handle, uintptr(f), uintptr(n), a, uintptr(lda), uintptr(unsafe.Pointer(&size)))
	return int(size), v.check("cusolverDnXpotrf_bufferSize", status)
}

// Cholesky enqueues the factorization of A, in place in the triangle f. info, an
// int on the device, is 0 on success and the order of the first bad minor otherwise.
func (v *Solver) Cholesky(f Fill, n int, a uintptr, lda int, work uintptr, size int, info uintptr, double bool) error {
	return v.check("cusolverDnXpotrf", plain(v.potrf[index(double)], v.handle, uintptr(f), uintptr(n), a, uintptr(lda), work, uintptr(size), info))
}
