package gemm

// Float is the set of element types that the kernels serve. It has no ~ terms:
// a named float type would need a second copy of every assembly dispatch.
type Float interface{ float32 | float64 }

// Matrix is a row-major view: element (i, j) is Data[i*Stride+j]. Its fields
// stand in the order of gonum's blas32.General and blas64.General, so that one
// converts to the other without copying.
type Matrix[T Float] struct {
	Rows, Cols, Stride int
	Data               []T
}

// NewMatrix returns a zeroed rows×cols matrix with Stride = cols.
func NewMatrix[T Float](rows, cols int) Matrix[T] {
	return Matrix[T]{Rows: rows, Cols: cols, Stride: cols, Data: make([]T, rows*cols)}
}

// MatrixOf views data as a packed rows×cols matrix.
func MatrixOf[T Float](rows, cols int, data []T) Matrix[T] {
	if rows < 0 || cols < 0 || len(data) < rows*cols {
		panic("gemm: data shorter than rows*cols")
	}
	return Matrix[T]{Rows: rows, Cols: cols, Stride: cols, Data: data[:rows*cols]}
}

// At returns element (i, j).
func (m Matrix[T]) At(i, j int) T { return m.Data[i*m.Stride+j] }

// Set stores v at element (i, j).
func (m Matrix[T]) Set(i, j int, v T) { m.Data[i*m.Stride+j] = v }

// Row returns row i, sharing storage.
func (m Matrix[T]) Row(i int) []T { return m.Data[i*m.Stride : i*m.Stride+m.Cols] }

// Slice returns the rows×cols view whose corner is element (i, j), sharing storage.
func (m Matrix[T]) Slice(i, j, rows, cols int) Matrix[T] {
	if i < 0 || j < 0 || rows < 0 || cols < 0 || i+rows > m.Rows || j+cols > m.Cols {
		panic("gemm: slice outside matrix")
	}
	v := Matrix[T]{Rows: rows, Cols: cols, Stride: m.Stride}
	if rows > 0 && cols > 0 {
		lo := i*m.Stride + j
		v.Data = m.Data[lo : lo+(rows-1)*m.Stride+cols]
	}
	return v
}
