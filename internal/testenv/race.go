//go:build race

package testenv

const (
	// Race reports whether the race detector is built in.
	Race = true
	// Slowdown is how many times longer a test may take in this build.
	Slowdown = 5
)
