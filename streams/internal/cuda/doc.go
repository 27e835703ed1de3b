// Package cuda calls the CUDA driver, cuBLAS and cuSOLVER, which it finds at run
// time. It is the raw layer: a table of functions per opened library, handles as
// uintptr, and every status as a typed error with the name of the call. Order,
// lifetimes and contexts are the caller's business.
//
// Symbols carry the suffixes under which the drivers export the current meaning of
// a call (_v2). Prototypes are those of the CUDA driver API reference; where CUDA
// 12.2 and 13 changed one (prefetch, advise) both are known and the newer one is
// used when it is there.
package cuda
