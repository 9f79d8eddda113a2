package cuda

import (
	"context"
	"fmt"

	"kvbench/internal/cudadrv"
	"kvbench/transport"
)

const (
	maxStreams     = 32
	maxOutstanding = 1 << 12 // each has events on every stream
)

// Transport is the CUDA IPC transport. The zero value is ready for use.
type Transport struct{}

var (
	_ transport.Transport = Transport{}
	_ transport.Library   = Transport{}
	_ transport.Checker   = Transport{}
)

// New returns the CUDA IPC transport.
func New() Transport { return Transport{} }

// Name implements transport.Transport.
func (Transport) Name() string { return "cuda" }

// Probe implements transport.Transport.
func (Transport) Probe(context.Context) error {
	_, err := openDriver()
	return err
}

// openDriver loads the driver. Its error wraps ErrUnavailable.
func openDriver() (*cudadrv.Driver, error) {
	d, err := cudadrv.Open()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", transport.ErrUnavailable, err)
	}
	return d, nil
}

// Library implements transport.Library.
func (Transport) Library() string {
	d, err := openDriver()
	if err != nil {
		return err.Error()
	}
	return "CUDA driver " + d.Version()
}

// Check implements transport.Checker. It checks that this process sees the device
// Config.GPU.
func (Transport) Check(_ context.Context, cfg transport.Config) error {
	d, err := openDriver()
	if err != nil {
		return err
	}
	if _, err := d.Device(cfg.GPU); err != nil {
		return fmt.Errorf("%w: %w", transport.ErrUnavailable, err)
	}
	return nil
}

// Capabilities implements transport.Transport.
func (Transport) Capabilities() transport.Capabilities {
	return transport.Capabilities{
		Write: true, Read: true, Memory: []transport.MemoryKind{transport.CUDAMemory},
		SameHostOnly: true, MaxStreams: maxStreams,
	}
}

// checkConfig applies the defaults and the limits.
func checkConfig(cfg transport.Config) (transport.Config, error) {
	cfg = cfg.WithDefaults()
	if cfg.Streams < 1 || cfg.Streams > maxStreams {
		return cfg, fmt.Errorf("%d streams, where 1 to %d are possible: %w", cfg.Streams, maxStreams, transport.ErrUnsupported)
	}
	if cfg.MaxOutstanding < 1 || cfg.MaxOutstanding > maxOutstanding {
		return cfg, fmt.Errorf("%d outstanding transfers, where 1 to %d are possible: %w", cfg.MaxOutstanding, maxOutstanding, transport.ErrUnsupported)
	}
	if cfg.PeerTimeout < 0 {
		return cfg, fmt.Errorf("negative timeout: %w", transport.ErrUnsupported)
	}
	return cfg, nil
}

// Dial implements transport.Transport.
func (Transport) Dial(ctx context.Context, addr transport.Address, cfg transport.Config) (transport.Initiator, error) {
	l, err := dial(ctx, addr, cfg, initiatorRole)
	if err != nil {
		return nil, err
	}
	return newInitiator(l), nil
}

// DialTarget implements transport.Transport.
func (Transport) DialTarget(ctx context.Context, addr transport.Address, cfg transport.Config) (transport.Target, error) {
	l, err := dial(ctx, addr, cfg, targetRole)
	if err != nil {
		return nil, err
	}
	return newTarget(l), nil
}
