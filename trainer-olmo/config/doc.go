// Package config reads, checks and writes the configuration of a training run.
//
// A run is described by one YAML file and by `key.path=value` overrides that
// are applied after it. Every key is a field of [Config]; its struct tags hold
// its name, its meaning and what it may be, and [Default] holds its default, so
// that the decoder, the error texts, the reference in the README and the
// resolved file all read from one place.
//
// Reading is strict. An unknown key, a wrong type or a value out of range is an
// error that names the key, the file and line, the value and what is allowed;
// all faults are reported together (see [Errors]).
//
// OLMo's own YAML files (those of the legacy `train.py`) are recognised by
// their keys and translated; [Config.Notices] then says which of their rules
// apply here and which of their keys have no effect.
package config
