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
	if r.pinned, err = c.Pin(r.memory.Bytes); err == nil {
		r.took = time.Since(start)
		if r.region, err = inner.Register(r.memory); err == nil {
			return r, nil
		}
		err = errors.Join(fmt.Errorf("register host memory to stage in: %w", err), r.pinned.Unpin())
	}
	if r.own != nil {
		err = errors.Join(err, r.own.Close())
	}
	return nil, err
}

// offset is where a place begins.
func offset(place int) int64 { return int64(place) * chunkBytes }
