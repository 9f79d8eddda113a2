package rdma_test

import (
	"testing"

	"kvbench/transport"
	"kvbench/transport/rdma"
	"kvbench/transport/transporttest"
)

func TestConformance(t *testing.T) {
	for name, s := range map[string]transporttest.Subject{
		"SharedMemory":         {Config: transport.Config{Lane: "shm"}},
		"SharedMemoryMessages": {Config: transport.Config{Lane: "shm", Operation: "am"}, Only: transport.Write},
		"TCP":                  {Config: transport.Config{Lane: "tcp"}},
		"TCPMessages":          {Config: transport.Config{Lane: "tcp", Operation: "am"}, Only: transport.Write},
		"BusyPoll":             {Config: transport.Config{Lane: "shm", BusyPoll: true}},
		// These need a device: scripts/test-rdma runs them in a virtual machine that has one.
		"RC":         {Config: transport.Config{Lane: "rc"}, Require: "rdma-device"},
		"RCMessages": {Config: transport.Config{Lane: "rc", Operation: "am"}, Only: transport.Write, Require: "rdma-device"},
	} {
		t.Run(name, func(t *testing.T) {
			s.Listener = rdma.New()
			transporttest.Run(t, s)
		})
	}
}
