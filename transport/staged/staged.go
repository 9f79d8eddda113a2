package staged

import (
	"context"
	"fmt"

	"kvbench/internal/cudadrv"
	"kvbench/transport"
)

const maxOutstanding = 1 << 16

// Transport is another transport with GPU memory in place of host memory: moved by that
// transport itself where both sides can, and otherwise staged.
type Transport struct{ inner transport.Transport }

var (
	_ transport.Transport = Transport{}
	_ transport.Checker   = Transport{}
)

// Over returns the transport of GPU memory over one that moves host memory.
func Over(inner transport.Transport) Transport { return Transport{inner} }

// Name implements transport.Transport: that of the transport below.
func (t Transport) Name() string { return t.inner.Name() }

// Probe implements transport.Transport: whether there are a driver, a GPU and the
// transport below.
func (t Transport) Probe(ctx context.Context) error {
	if _, err := openDriver(); err != nil {
		return err
	}
	return t.inner.Probe(ctx)
}

// openDriver loads the driver, or says that the transport is not available.
func openDriver() (*cudadrv.Driver, error) {
	d, err := cudadrv.Open()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", transport.ErrUnavailable, err)
	}
	return d, nil
}

// Check implements transport.Checker: whether this process sees the GPU, and what the
// transport below says.
func (t Transport) Check(ctx context.Context, cfg transport.Config) error {
	d, err := openDriver()
	if err != nil {
		return err
	}
	if _, err := d.Device(cfg.GPU); err != nil {
		return fmt.Errorf("%w: %w", transport.ErrUnavailable, err)
	}
	if c, ok := t.inner.(transport.Checker); ok {
		return c.Check(ctx, cfg)
	}
	return nil
}

// Capabilities implements transport.Transport.
func (t Transport) Capabilities() transport.Capabilities {
	can := t.inner.Capabilities()
	can.Memory = []transport.MemoryKind{transport.CUDAMemory}
	can.HostBytes += ringBytes
	return can
}

// checkConfig applies the defaults and this transport's limits.
func checkConfig(cfg transport.Config) (transport.Config, error) {
	cfg = cfg.WithDefaults()
	if cfg.MaxOutstanding < 1 || cfg.MaxOutstanding > maxOutstanding {
		return cfg, fmt.Errorf("%d outstanding transfers, where 1 to %d are possible: %w", cfg.MaxOutstanding, maxOutstanding, transport.ErrUnsupported)
	}
	if cfg.PeerTimeout < 0 {
		return cfg, fmt.Errorf("negative timeout: %w", transport.ErrUnsupported)
	}
	return cfg, nil
}

// innerConfig is what the inner connection of one of ours is made with.
func innerConfig(cfg transport.Config) transport.Config {
	cfg.MaxOutstanding, cfg.MaxDescriptors = ringPlaces, 1
	return cfg
}
