// Package gonumblas lets gonum compute its level-3 BLAS with package gemm:
//
//	e := gemm.New(2)
//	defer e.Close()
//	impl := gonumblas.New(e)
//	blas32.Use(impl)
//	blas64.Use(impl)
//
// Levels 1 and 2 and all argument checks are gonum's own, so that panics and quick
// returns stay as they are. Symm and the upper forms of Syrk and Syr2k allocate a
// temporary; the others do not.
//
// An Implementation is safe for concurrent use, as its engine is.
package gonumblas
