// Package rdma moves data over RDMA through UCX. On request it uses UCX's other lanes:
// TCP, and shared memory as the baseline of one host.
//
// A connection has one UCX worker, driven by one thread, and a socket to the peer
// (package rendezvous) that introduces the two workers. A WRITE is a put or an active
// message, a READ a get. A put that has completed locally is not yet delivered. The
// initiator flushes, sends a notice, and counts the transfer as delivered when the
// target has acknowledged the notice. If the lane has one-sided operations, a target
// needs its CPU only for the notice.
//
// UCX picks the lanes, and may pick another than intended. The package reads them back
// after the first transfer, and a connection on another lane than Config.Lane fails.
package rdma

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"kvbench/internal/ucx"
	"kvbench/transport"
)

// Transport is the RDMA transport. The zero value is ready for use.
type Transport struct {
	reachable bool // see WithReachableGPUs
}

var (
	_ transport.Transport   = Transport{}
	_ transport.Checker     = Transport{}
	_ transport.LaneLister  = Transport{}
	_ transport.Library     = Transport{}
	_ transport.DirectMover = Transport{}
)

// New returns the RDMA transport.
func New() Transport { return Transport{} }

// Name implements transport.Transport.
func (Transport) Name() string { return "rdma" }

// Capabilities implements transport.Transport. It reports one stream, because UCX
// spreads a connection over several devices. Support of GPU memory depends on the lane:
// see CheckDirect.
func (Transport) Capabilities() transport.Capabilities {
	return transport.Capabilities{Write: true, Read: true, Memory: []transport.MemoryKind{transport.HostMemory}, MaxStreams: 1}
}

// Probe implements transport.Transport. It returns an error if UCX is missing.
func (Transport) Probe(context.Context) error {
	err := ucx.Load()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ucx.ErrNotBuilt):
		return fmt.Errorf("%w: %w; rebuild with cgo and -tags ucx, with libucx-dev installed", transport.ErrUnavailable, err)
	default:
		return fmt.Errorf("%w: UCX is not installed: %w; install libucx0 (Debian) or ucx (RHEL)", transport.ErrUnavailable, err)
	}
}

// Library implements transport.Library.
func (Transport) Library() string {
	version, err := ucx.Version()
	if err != nil {
		return err.Error()
	}
	return "UCX " + version
}

// The operations of Config.Operation.
const (
	opPut = "put"
	opAM  = "am"
	opGet = "get"
)

const (
	maxOutstanding = 1 << 16
	// window is the most operations of a connection inside UCX at a time. More would
	// only queue there.
	window = 512
	// maxPiece is the most bytes of one operation, so that a large transfer shows
	// progress.
	maxPiece = 8 << 20
)

// checkConfig applies the defaults and this transport's limits.
func checkConfig(cfg transport.Config) (transport.Config, family, error) {
	cfg = cfg.WithDefaults()
	f, ok := familyOf(cfg.Lane)
	switch {
	case !ok:
		return cfg, f, fmt.Errorf("lane %q is not known: choose rc, dc, ud, tcp or shm, or none for any RDMA lane: %w", cfg.Lane, transport.ErrUnsupported)
	case !slices.Contains([]string{"", opPut, opAM, opGet}, cfg.Operation):
		return cfg, f, fmt.Errorf("operation %q is not known: choose put, am or get: %w", cfg.Operation, transport.ErrUnsupported)
	case cfg.Streams != 1:
		return cfg, f, fmt.Errorf("%d streams: UCX spreads a connection over devices by itself (UCX_MAX_RNDV_RAILS): %w", cfg.Streams, transport.ErrUnsupported)
	case f.oneHost && cfg.Device != "":
		return cfg, f, fmt.Errorf("device %q: %v is the memory of one host: leave --device out: %w", cfg.Device, f, transport.ErrUnsupported)
	case cfg.MaxOutstanding < 1 || cfg.MaxOutstanding > maxOutstanding:
		return cfg, f, fmt.Errorf("%d outstanding transfers, where 1 to %d are possible: %w", cfg.MaxOutstanding, maxOutstanding, transport.ErrUnsupported)
	case cfg.PeerTimeout < 0:
		return cfg, f, fmt.Errorf("negative timeout: %w", transport.ErrUnsupported)
	}
	return cfg, f, nil
}

// Check implements transport.Checker.
func (t Transport) Check(ctx context.Context, cfg transport.Config) error {
	if err := t.Probe(ctx); err != nil {
		return err
	}
	cfg, f, err := checkConfig(cfg)
	if err != nil {
		return err
	}
	return usable(f, cfg.Device)
}
