//go:build !race

package testenv

const (
	// Race is true if the race detector is built in.
	Race = false
	// Slowdown multiplies the time that a test may take in this build.
	Slowdown = 1
)
