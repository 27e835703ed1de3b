package config

// Size is a number of bytes. In YAML it may carry a unit: B, KB, MB, GB, TB
// (powers of 1000) or KiB, MiB, GiB, TiB (powers of 1024).
type Size int64

// Count is a number of steps, tokens or epochs. In YAML it may be written with
// underscores or an exponent: 4096, 739_328, 5e12. It must be whole.
type Count int64
