package rdma_test

import (
	"testing"
	"time"

	"kvbench/internal/testenv"
	"kvbench/transport"
	"kvbench/transport/rdma"
	"kvbench/transport/transporttest"
)

// emulated is the patience with a machine that is emulated down to its processor.
const emulated = 3 * time.Minute

// TestConformance has every lane that is here, with one-sided operations and with messages.
// The long run adds a thread that does not sleep, which takes a core of its own on either
// side: TestBusyPoll has what is left of that.
func TestConformance(t *testing.T) {
	// On a busy host an emulated processor can stand still for longer than the default
	// PeerTimeout of 10 s.
	rc := transport.Config{Lane: "rc", PeerTimeout: emulated / 3}
	rcMessages := rc
	rcMessages.Operation = "am"
	subjects := map[string]transporttest.Subject{
		"SharedMemory":         {Config: transport.Config{Lane: "shm"}},
		"SharedMemoryMessages": {Config: transport.Config{Lane: "shm", Operation: "am"}, Only: transport.Write},
		"TCP":                  {Config: transport.Config{Lane: "tcp"}},
		"TCPMessages":          {Config: transport.Config{Lane: "tcp", Operation: "am"}, Only: transport.Write},
		// These need a device: scripts/test-rdma runs them in a virtual machine that has one.
		"RC":         {Config: rc, Require: "rdma-device", Patience: emulated},
		"RCMessages": {Config: rcMessages, Only: transport.Write, Require: "rdma-device", Patience: emulated},
	}
	if testenv.Full {
		subjects["BusyPoll"] = transporttest.Subject{Config: transport.Config{Lane: "shm", BusyPoll: true}}
	}
	for name, s := range subjects {
		t.Run(name, func(t *testing.T) {
			s.Listener = rdma.New()
			transporttest.Run(t, s)
		})
	}
}

// TestBusyPoll moves bytes by every operation with threads that do not sleep.
func TestBusyPoll(t *testing.T) {
	needProbe(t)
	for _, operation := range operations {
		t.Run(operation, func(t *testing.T) {
			cycle(t, transport.Config{Lane: "shm", Operation: operation, BusyPoll: true})
		})
	}
}
