// Package results is the record of a run: its JSON schema, its latency
// histograms, and how it is written and read back. It knows nothing of how a
// run is made; bench fills it in and report prints it.
package results
