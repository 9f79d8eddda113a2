package cuda

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"kvbench/transport"
)

// identity is what decides whether a handle of one process opens in another. An
// empty field is one that the system did not tell.
type identity struct {
	Boot         string `json:"boot_id"`       // of the running kernel: tells hosts apart
	PIDNamespace string `json:"pid_namespace"` // as /proc/self/ns/pid names it
	PID          int    `json:"pid"`           // in that namespace
}

// self is this process.
var self = sync.OnceValue(func() identity {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	namespace, _ := os.Readlink("/proc/self/ns/pid")
	return identity{strings.TrimSpace(string(boot)), namespace, os.Getpid()}
})

// errNamespaces marks the one reason against handles that is none against file
// descriptors.
var errNamespaces = errors.New("CUDA IPC handles do not cross PID namespaces")

// opensHandlesOf says why handles of another process do not open in this one, or
// returns nil. The error wraps transport.ErrUnavailable.
func (id identity) opensHandlesOf(peer identity) error {
	differ := func(a, b string) bool { return a != "" && b != "" && a != b }
	switch {
	case differ(id.Boot, peer.Boot):
		return fmt.Errorf("%w: CUDA IPC works within one host, and the peer runs on another (boot ID %s here, %s there): use the transport tcp or rdma",
			transport.ErrUnavailable, id.Boot, peer.Boot)
	case differ(id.PIDNamespace, peer.PIDNamespace):
		return fmt.Errorf("%w: %w (%s here, %s there): run both in one, with --pid=host (docker) or hostPID: true (Kubernetes)",
			transport.ErrUnavailable, errNamespaces, id.PIDNamespace, peer.PIDNamespace)
	case id.PID == peer.PID:
		return fmt.Errorf("%w: a CUDA IPC handle does not open in the process that made it: run producer and consumer as two processes",
			transport.ErrUnavailable)
	}
	return nil
}
