package cuda

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"kvbench/transport"
)

// identity determines whether a handle of one process opens in another. A field is
// empty if the system did not report it.
type identity struct {
	Boot         string `json:"boot_id"`       // ID of the running kernel's boot, which differs between hosts
	PIDNamespace string `json:"pid_namespace"` // target of the link /proc/self/ns/pid
	PID          int    `json:"pid"`           // in that namespace
}

// self returns the identity of this process.
var self = sync.OnceValue(func() identity {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	namespace, _ := os.Readlink("/proc/self/ns/pid")
	return identity{strings.TrimSpace(string(boot)), namespace, os.Getpid()}
})

// errNamespaces marks the one reason against handles that does not rule out file
// descriptors.
var errNamespaces = errors.New("CUDA IPC handles do not cross PID namespaces")

// opensHandlesOf returns an error if handles of another process do not open in this
// one. The error wraps transport.ErrUnavailable.
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
