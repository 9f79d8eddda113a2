package staged

import (
	"errors"
	"fmt"
	"time"

	"kvbench/internal/cudadrv"
	"kvbench/internal/hostmem"
	"kvbench/transport"
)

// ring is one side's host memory for chunks. It is pinned for the device and registered
// with the inner connection.
type ring struct {
	own    *hostmem.Buffer
	pinned *cudadrv.Pinned
	region transport.Region
	took   time.Duration // time to allocate and pin
}

// newRing allocates the memory itself, because memory of the inner endpoint could be
// freed as soon as its connection failed, with copies still in flight. The cost: UCX's
// shared memory emulates puts into such memory, and reports that it does.
func newRing(c *cudadrv.Context, inner transport.Endpoint) (*ring, error) {
	start := time.Now()
	own, err := hostmem.Alloc(ringBytes, hostmem.Options{})
	if err != nil {
		return nil, fmt.Errorf("make host memory to stage in: %w", err)
	}
	pinned, err := c.Pin(own.Bytes)
	if err != nil {
		return nil, errors.Join(err, own.Close())
	}
	r := &ring{own: own, pinned: pinned, took: time.Since(start)}
	if r.region, err = inner.Register(transport.HostBytes(own.Bytes)); err != nil {
		return nil, errors.Join(fmt.Errorf("register host memory to stage in: %w", err), pinned.Unpin(), own.Close())
	}
	return r, nil
}

// offset returns the start of a place in the ring.
func offset(place int) int64 { return int64(place) * chunkBytes }
