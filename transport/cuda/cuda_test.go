package cuda_test

import (
	"testing"

	"kvbench/internal/cudadrv/testdouble"
	"kvbench/transport"
	"kvbench/transport/cuda"
	"kvbench/transport/transporttest"
)

// TestConformance runs the suite between two processes, on one device and on two. It and
// the tests of memory that file descriptors share have four parts of the suite between
// them, and the whole of it each on a GPU.
func TestConformance(t *testing.T) {
	for _, c := range []struct {
		name   string
		cfg    transport.Config
		device int // of the second process
		part   int
	}{
		{"OneStream", transport.Config{}, 0, 1},
		{"TwoDevicesThreeStreamsBusy", transport.Config{Streams: 3, BusyPoll: true}, 1, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			if testdouble.Real() && c.device > 0 {
				t.Skip("may have one device only")
			}
			testdouble.Need(t)
			peer := start(t, c.device)
			transporttest.Run(t, transporttest.Subject{
				Listener: peer, ListenerMemory: peer.Alloc,
				Dialer: cuda.New(), DialerMemory: memoryOf(0),
				Config: c.cfg,
				All:    testdouble.Real(), Part: c.part,
			})
		})
	}
}

// TestConformanceByDescriptor is TestConformance with memory that file descriptors share.
func TestConformanceByDescriptor(t *testing.T) {
	needShareable(t)
	peer := start(t, 0, shareableVar+"=1")
	transporttest.Run(t, transporttest.Subject{
		Listener: peer, ListenerMemory: peer.Alloc,
		Dialer: cuda.New(), DialerMemory: shareableOf(0),
		All: testdouble.Real(), Part: 3,
	})
}
