//go:build race && !full

package main

import (
	"os"
	"strings"
)

// A process that the race detector is built into waits a second at its end for the races
// of other goroutines. These tests start hundreds of processes, so only the long run waits.
func init() {
	const atOnce = "atexit_sleep_ms=0"
	if set := os.Getenv("GORACE"); !strings.Contains(set, atOnce) {
		os.Setenv("GORACE", strings.TrimSpace(atOnce+" "+set))
	}
}
