// Package report reads run folders and shows what happened: a table for the
// terminal, PNG plots, and one HTML page that holds everything and needs no
// network.
//
// A run folder holds metrics.jsonl (one JSON object a step, see [Read]),
// config.yaml and, when there is second-order state, health.json. All but the
// metrics may be missing, and a metrics file whose last line was cut by a crash
// is read up to there.
package report
