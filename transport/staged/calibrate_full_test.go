//go:build full

package staged_test

import (
	"errors"
	"testing"
	"time"

	"kvbench/transport"
)

// TestSlowSides is TestEachSideHasItsTime between two processes. At 30 MB/s the ten copies
// of 4 MiB take a side 1.4 s, and so both 2.8 s, which is more than PeerTimeout.
func TestSlowSides(t *testing.T) {
	sides := startTwo(t, "CUDA_DOUBLE_COPY_RATE=30000000")
	const patience = 2500 * time.Millisecond
	begin := time.Now()
	here, there := meet(t, sides[0], sides[1], transport.Config{PeerTimeout: patience}, false)
	if took := time.Since(begin); took < patience {
		t.Errorf("both sides were timed within %v", took)
	}
	if err := errors.Join(here.Close(), there.Close()); err != nil {
		t.Error(err)
	}
}
