// Package testenv describes the build and the machine for the tests of every package.
// Only tests and test support import it.
package testenv

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// RequireVar is the environment variable that lists, with commas, the features that a
// machine must have: netns, rdma, cuda-double and so on. A test that needs a listed
// feature and does not find it fails. If the feature is not listed, the test is
// skipped.
const RequireVar = "KVBENCH_REQUIRE"

// EndAtOnce is the variable, with its value, that ends a child process of a test when it is
// done. The race detector's runtime otherwise sleeps for a second first, so that other
// threads can print their reports.
func EndAtOnce() (name, value string) {
	return "GORACE", strings.TrimSpace(os.Getenv("GORACE") + " atexit_sleep_ms=0")
}

// Skip ends a test that needs a feature missing from this machine or build. It skips
// the test with the reason, or fails it if RequireVar lists need.
func Skip(tb testing.TB, need, reason string) {
	tb.Helper()
	if slices.Contains(strings.Split(os.Getenv(RequireVar), ","), need) {
		tb.Fatalf("%s lists %s: %s", RequireVar, need, reason)
	}
	tb.Skipf("%s: %s", need, reason)
}
