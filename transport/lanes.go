package transport

import "context"

// Lane is one way for a transport to move data on this host.
type Lane struct {
	Name   string // the protocol, the first part of Path.Lane: rc_verbs, for example
	Device string // device and port or interface; empty if the lane has none
	// RDMA lanes write and read remote memory without the remote CPU. Software lanes use
	// the CPU for this, or for other work that hardware normally does.
	RDMA         bool
	Software     bool
	SameHostOnly bool // both processes must run on one host
	Usable       bool
	Reason       string // if not usable: the cause and the fix
}

// LaneLister is implemented by a transport that chooses among lanes. It is optional: a
// transport without it is a single lane.
type LaneLister interface {
	// Lanes lists the lanes of this host, including those that cannot be used. It returns
	// an error that wraps ErrUnavailable if the transport as a whole cannot be used.
	Lanes(ctx context.Context) ([]Lane, error)
}

// Library is implemented by a transport that loads a third-party library at run time.
type Library interface {
	// Library returns the name and version of the loaded library, such as UCX 1.13.1. It
	// is for a transport that passed Probe.
	Library() string
}
