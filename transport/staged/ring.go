package staged

import (
	"errors"
	"fmt"
	"time"

	"kvbench/internal/cudadrv"
	"kvbench/internal/hostmem"
	"kvbench/transport"
)

// ring is one side's host memory for chunks: pinned for the device, and registered
// with the inner connection.
type ring struct {
	memory transport.Memory
	own    *hostmem.Buffer // nil where the inner endpoint made it, and frees it
	pinned *cudadrv.Pinned
	region transport.Region
	took   time.Duration // to make and to pin
}

// newRing makes the memory, of the inner endpoint's own making where it has one.
func newRing(c *cudadrv.Context, inner transport.Endpoint) (r *ring, err error) {
	start := time.Now()
	r = &ring{}
	err = transport.ErrUnsupported
	if a, ok := inner.(transport.Allocator); ok {
		r.memory, err = a.Allocate(ringBytes)
	}
	if errors.Is(err, transport.ErrUnsupported) {
		if r.own, err = hostmem.Alloc(ringBytes, hostmem.Options{}); err == nil {
			r.memory = transport.HostBytes(r.own.Bytes)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("make host memory to stage in: %w", err)
	}
	if r.pinned, err = c.Pin(r.memory.Bytes); err != nil {
		return nil, errors.Join(err, r.free())
	}
	r.took = time.Since(start)
	if r.region, err = inner.Register(r.memory); err != nil {
		return nil, errors.Join(fmt.Errorf("register host memory to stage in: %w", err), r.free())
	}
	return r, nil
}

// free gives the memory back. The device and the inner connection use it no more.
func (r *ring) free() error {
	var errs []error
	if r.pinned != nil {
		errs = append(errs, r.pinned.Unpin())
	}
	if r.own != nil {
		errs = append(errs, r.own.Close())
	}
	return errors.Join(errs...)
}

// offset is where a place begins.
func offset(place int) int64 { return int64(place) * chunkBytes }
