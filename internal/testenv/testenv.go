// Package testenv holds what the tests of every package need to know about the
// build and the machine that they run on. Only tests and test support import it.
package testenv

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// RequireVar is the environment variable that lists, with commas, what a machine must
// have: netns, rdma, cuda-double and so on. A test that needs something of the list
// and does not find it fails; without the entry it is skipped.
const RequireVar = "KVBENCH_REQUIRE"

// Skip ends a test that needs something this machine or build does not have: it
// skips the test with the reason, or fails it if RequireVar lists need.
func Skip(tb testing.TB, need, reason string) {
	tb.Helper()
	if slices.Contains(strings.Split(os.Getenv(RequireVar), ","), need) {
		tb.Fatalf("%s lists %s: %s", RequireVar, need, reason)
	}
	tb.Skipf("%s: %s", need, reason)
}
