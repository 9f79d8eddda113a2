package rdma_test

import (
	"testing"

	"kvbench/transport"
	"kvbench/transport/rdma"
	"kvbench/transport/transporttest"
)

func TestConformance(t *testing.T) {
	for name, cfg := range map[string]transport.Config{
		"SharedMemory":         {Lane: "shm"},
		"SharedMemoryMessages": {Lane: "shm", Operation: "am"},
		"TCP":                  {Lane: "tcp"},
		"TCPMessages":          {Lane: "tcp", Operation: "am"},
	} {
		t.Run(name, func(t *testing.T) {
			transporttest.Run(t, transporttest.Subject{Listener: rdma.New(), Config: cfg})
		})
	}
}
