package gpumem_test

import (
	"runtime"
	"testing"
	"time"

	"kvbench/internal/gpumem"
	"kvbench/transport"
)

func TestSpin(t *testing.T) {
	cfg := transport.Config{PeerTimeout: time.Second, BusyPoll: true}
	if got := gpumem.Spin(cfg); got != time.Second {
		t.Errorf("asked never to sleep: %v", got)
	}
	cfg.BusyPoll = false
	if got := gpumem.Spin(cfg); (got > 0) != (runtime.NumCPU() >= 4) || got >= time.Millisecond {
		t.Errorf("%v with %d cores", got, runtime.NumCPU())
	}
}
