package rdma

import (
	"sync"
	"time"

	"kvbench/internal/hostinfo"
)

// snapshot caches this host's RDMA devices. Reading them opens a file for every entry
// of every GID table, and a run makes several connections.
var snapshot struct {
	sync.Mutex
	taken   time.Time
	devices []hostinfo.RDMADevice
	fault   hostinfo.Fault
}

// fresh is how long a snapshot is used: longer than the connecting of a run takes. UCX
// detects changes in between.
const fresh = time.Minute

// rdmaDevices returns this host's RDMA devices. If there are none, the fault is the
// reason.
func rdmaDevices() ([]hostinfo.RDMADevice, hostinfo.Fault) {
	snapshot.Lock()
	defer snapshot.Unlock()
	if snapshot.taken.IsZero() || time.Since(snapshot.taken) > fresh {
		snapshot.devices, snapshot.fault = hostinfo.RDMADevices()
		snapshot.taken = time.Now()
	}
	return snapshot.devices, snapshot.fault
}
