package transport

import "context"

// Lane is one way in which a transport can move data on this host.
type Lane struct {
	Name   string // the protocol, as Path.Lane begins with it: rc_verbs, say
	Device string // device and port or interface, empty where the lane has none
	// RDMA lanes write and read remote memory without the remote CPU; Software ones
	// do that, or anything else that hardware is known for, on the CPU.
	RDMA         bool
	Software     bool
	SameHostOnly bool // both processes must run on one host
	Usable       bool
	Reason       string // where it is not usable: why, and how to mend it
}

// LaneLister is implemented by a transport that chooses among lanes. It is
// optional: a transport without it is one lane by itself.
type LaneLister interface {
	// Lanes lists the lanes of this host, those that cannot be used among them. It returns
	// an error that wraps ErrUnavailable where the transport as a whole cannot be used.
	Lanes(ctx context.Context) ([]Lane, error)
}

// Library is implemented by a transport that loads somebody else's library at run time.
type Library interface {
	// Library names what was loaded and its version, such as UCX 1.13.1. It is for a
	// transport whose Probe found it.
	Library() string
}
