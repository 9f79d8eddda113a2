// Package results holds the record of a run: its JSON schema, its latency histograms, and
// the code that writes it and reads it back. It does not depend on the code that makes a
// run; bench fills the record and report prints it.
package results
