package rdma

import (
	"sync"
	"time"

	"kvbench/internal/hostinfo"
)

// snapshot is this host's RDMA devices as they were a moment ago. Reading them takes
// a file for every entry of every GID table, which a run of several connections
// would do over and over.
var snapshot struct {
	sync.Mutex
	taken   time.Time
	devices []hostinfo.RDMADevice
	fault   hostinfo.Fault
}

// fresh is how long a snapshot serves: longer than connecting a run takes on any
// host. What changes meanwhile UCX finds by itself.
const fresh = time.Minute

// rdmaDevices lists this host's RDMA devices; where there are none the fault says why.
func rdmaDevices() ([]hostinfo.RDMADevice, hostinfo.Fault) {
	snapshot.Lock()
	defer snapshot.Unlock()
	if snapshot.taken.IsZero() || time.Since(snapshot.taken) > fresh {
		snapshot.devices, snapshot.fault = hostinfo.RDMADevices()
		snapshot.taken = time.Now()
	}
	return snapshot.devices, snapshot.fault
}
