package mem_test

import (
	"testing"
	"time"

	"kvbench/internal/testenv"
	"kvbench/transport/mem"
	"kvbench/transport/transporttest"
)

func TestConformance(t *testing.T) {
	transporttest.Run(t, transporttest.Subject{Listener: mem.New()})
}

// TestSuiteCatchesFaults holds broken transports up to the suite. A fault that no
// case notices is a hole in the suite.
func TestSuiteCatchesFaults(t *testing.T) {
	if testenv.Race {
		t.Skip("a transport that completes before its bytes are there is a data race by intention; the build without the detector runs this")
	}
	for _, f := range mem.Faults() {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			name, complaints := transporttest.FirstFailure(transporttest.Subject{Listener: mem.New(f), Patience: 2 * time.Second})
			if name == "" {
				t.Fatalf("a transport with fault %q passed every case", f)
			}
			t.Logf("caught by %s: %.120s", name, complaints[0])
		})
	}
}
