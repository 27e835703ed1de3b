// Package streamstest is the conformance suite of streams: what every device must
// do, whoever serves its streams.
package streamstest
