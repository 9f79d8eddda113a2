package staged

import (
	"context"
	"fmt"

	"kvbench/internal/cudadrv"
	"kvbench/transport"
)

const maxOutstanding = 1 << 16

// Transport moves GPU memory over another transport: directly if both sides can, and
// staged otherwise.
type Transport struct{ inner transport.Transport }

var (
	_ transport.Transport = Transport{}
	_ transport.Checker   = Transport{}
)

// Over returns a transport of GPU memory over inner, which moves host memory.
func Over(inner transport.Transport) Transport { return Transport{inner} }

// Name implements transport.Transport. It returns the inner transport's name.
func (t Transport) Name() string { return t.inner.Name() }

// Probe implements transport.Transport. It returns an error if the driver, a GPU or the
// inner transport is missing.
func (t Transport) Probe(ctx context.Context) error {
	if _, err := openDriver(); err != nil {
		return err
	}
	return t.inner.Probe(ctx)
}

// openDriver loads the driver. Its error wraps ErrUnavailable.
func openDriver() (*cudadrv.Driver, error) {
	d, err := cudadrv.Open()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", transport.ErrUnavailable, err)
	}
	return d, nil
}

// Check implements transport.Checker. It checks that this process sees the GPU, and
// then the inner transport.
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

// innerConfig returns the configuration of the inner connection of a staged one.
func innerConfig(cfg transport.Config) transport.Config {
	cfg.MaxOutstanding, cfg.MaxDescriptors = ringPlaces, 1
	return cfg
}
