// Package krontest checks kron against golden trajectories, with any solver.
//
// [Run] plays every golden file of a family through [kron.Block] in float64 and
// float32, with the caller's [kron.Refresher]; [Reference] is a slow and simple
// one to compare with. The files hold gradients and the parameters after every
// step, as the reference implementations produced them; their schema is
// asteria-golden/1.
package krontest
