// Package mpi calls the Open MPI library of the machine, which is looked for
// when it is needed and not before. It knows Open MPI's binary interface
// (libmpi.so.40: releases 3, 4 and 5) and the few functions that hiersync needs;
// where the library cannot be had, Open returns an error that is
// errors.ErrUnsupported and says what was looked for.
//
// All calls belong to one OS thread, the one that initialised the library.
package mpi
