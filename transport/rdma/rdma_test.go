package rdma_test

import (
	"testing"
	"time"

	"kvbench/transport"
	"kvbench/transport/rdma"
	"kvbench/transport/transporttest"
)

// emulated is the patience with a machine that is emulated down to its processor.
const emulated = 3 * time.Minute

func TestConformance(t *testing.T) {
	for name, s := range map[string]transporttest.Subject{
		"SharedMemory":         {Config: transport.Config{Lane: "shm"}},
		"SharedMemoryMessages": {Config: transport.Config{Lane: "shm", Operation: "am"}, Only: transport.Write},
		"TCP":                  {Config: transport.Config{Lane: "tcp"}},
		"TCPMessages":          {Config: transport.Config{Lane: "tcp", Operation: "am"}, Only: transport.Write},
		"BusyPoll":             {Config: transport.Config{Lane: "shm", BusyPoll: true}},
		// These need a device: scripts/test-rdma runs them in a virtual machine that has one.
		"RC":         {Config: transport.Config{Lane: "rc"}, Require: "rdma-device", Patience: emulated},
		"RCMessages": {Config: transport.Config{Lane: "rc", Operation: "am"}, Only: transport.Write, Require: "rdma-device", Patience: emulated},
	} {
		t.Run(name, func(t *testing.T) {
			s.Listener = rdma.New()
			transporttest.Run(t, s)
		})
	}
}
