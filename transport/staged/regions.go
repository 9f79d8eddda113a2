package staged

import (
	"fmt"
	"sync"

	"kvbench/internal/cudadrv"
	"kvbench/internal/gpumem"
	"kvbench/transport"
)

// region is registered device memory and the number of chunks or transfers that use it.
// The table's mutex guards its fields.
type region struct {
	id      uint32
	pointer cudadrv.DevicePointer
	size    int64
	uses    int
}

// regionTable holds the registered memory of one side.
type regionTable struct {
	mu    sync.Mutex
	last  uint32
	byID  map[uint32]*region
	idle  sync.Cond // signalled when a region's uses reach 0, or the connection has ended
	ended bool
	held  bool // regions in use at the end of the connection stay in use
}

// Register implements transport.Endpoint. It is cheap, because device memory is never
// registered with the inner transport.
func (c *connection) Register(m transport.Memory) (transport.Region, error) {
	if err := c.Err(); err != nil {
		return transport.Region{}, err
	}
	if err := c.checkMemory(m); err != nil {
		return transport.Region{}, err
	}
	t := &c.regions
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID == nil {
		t.byID = make(map[uint32]*region)
	}
	t.last++
	t.byID[t.last] = &region{id: t.last, pointer: cudadrv.DevicePointer(m.Pointer), size: m.Length}
	return transport.Region{ID: t.last, Size: m.Length}, nil
}

// checkMemory returns an error if memory cannot be registered.
func (c *connection) checkMemory(m transport.Memory) error {
	if m.Kind != transport.CUDAMemory {
		return fmt.Errorf("register %s memory to be staged, which is for GPU memory: %w", m.Kind, transport.ErrUnsupported)
	}
	return gpumem.Check(c.context, m)
}

// get returns a region, or nil if there is none.
func (t *regionTable) get(id uint32) *region {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[id]
}

// acquire adds one use to a region and returns it, or returns nil if there is none.
func (t *regionTable) acquire(id uint32) *region {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.byID[id]
	if r != nil {
		r.uses++
	}
	return r
}

func (t *regionTable) release(r *region) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held {
		return
	}
	if r.uses--; r.uses == 0 {
		t.idle.Broadcast()
	}
}

// remove deregisters a region that is not in use.
func (t *regionTable) remove(id uint32) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.byID[id]
	if r == nil {
		return fmt.Errorf("deregister region %d: %w", id, transport.ErrRegion)
	}
	if r.uses > 0 {
		return fmt.Errorf("deregister region %d: %w", id, transport.ErrBusy)
	}
	delete(t.byID, id)
	return nil
}

// withdraw deregisters a region for new chunks, and waits for the chunks in flight.
func (t *regionTable) withdraw(id uint32) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.byID[id]
	if r == nil {
		return fmt.Errorf("deregister region %d: %w", id, transport.ErrRegion)
	}
	delete(t.byID, id)
	for r.uses > 0 && !t.ended {
		t.idle.Wait()
	}
	if r.uses > 0 && t.held {
		t.byID[id] = r
		return fmt.Errorf("deregister region %d: %w", id, transport.ErrBusy)
	}
	return nil
}

// end ends all uses of regions. With held, copies may still be in flight, and the
// regions in use stay so.
func (t *regionTable) end(held bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended, t.held = true, held
	t.idle.Broadcast()
}

// covers reports whether a region overlaps a range of device memory.
func (t *regionTable) covers(at cudadrv.DevicePointer, size int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.byID {
		if r.pointer < at+cudadrv.DevicePointer(size) && at < r.pointer+cudadrv.DevicePointer(r.size) {
			return true
		}
	}
	return false
}
