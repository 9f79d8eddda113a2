package rdma

import (
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"kvbench/internal/cudadrv"
	"kvbench/internal/gpumem"
	"kvbench/internal/ucx"
	"kvbench/transport"
)

// mapping is memory registered with UCX, shared by the regions that cover the same
// bytes.
type mapping struct {
	ucx.Memory
	own     bool // UCX allocated it: it stays mapped until it is freed
	regions int
	pinned  runtime.Pinner
}

// span is a range of this process's memory.
type span struct {
	address uintptr
	length  int64
}

// region is registered memory and the number of its current uses. The table's mutex
// guards its fields.
type region struct {
	id         uint32
	size       int64
	memory     *mapping // nil for an empty region
	uses       int
	advertised bool
}

// regionTable holds the registered memory of one side. Registering the same memory
// again is free: its pages are pinned once.
type regionTable struct {
	mu       sync.Mutex
	next     uint32
	byID     map[uint32]*region
	mappings map[span]*mapping
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
	r.uses--
	t.mu.Unlock()
}

// spanOf returns the span of memory.
func spanOf(m transport.Memory) span {
	if m.Kind == transport.CUDAMemory {
		return span{m.Pointer, m.Length}
	}
	return span{uintptr(unsafe.Pointer(unsafe.SliceData(m.Bytes))), int64(len(m.Bytes))}
}

// Register implements transport.Endpoint.
func (c *connection) Register(m transport.Memory) (transport.Region, error) {
	if err := c.Err(); err != nil {
		return transport.Region{}, err
	}
	if err := c.checkMemory(m); err != nil {
		return transport.Region{}, err
	}
	var r *region
	var err error
	if !c.engine.do(func() { r, err = c.register(m) }) {
		return transport.Region{}, c.Err()
	}
	if err != nil {
		return transport.Region{}, explainRegistration(err, m.Kind, m.Size())
	}
	return transport.Region{ID: r.id, Size: r.size}, nil
}

// checkMemory returns an error if memory cannot be registered.
func (c *connection) checkMemory(m transport.Memory) error {
	switch {
	case c.gpu != nil && m.Kind == transport.CUDAMemory:
		return gpumem.Check(c.gpu.context, m)
	case c.gpu == nil && m.Kind == transport.HostMemory:
		return nil
	}
	return fmt.Errorf("register %s memory for rdma, with a connection of another kind: %w", m.Kind, transport.ErrUnsupported)
}

// register adds a region. The engine must be held.
func (c *connection) register(m transport.Memory) (*region, error) {
	t := &c.regions
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &region{id: t.next + 1, size: m.Size()}
	if r.size > 0 {
		at, err := c.mapped(spanOf(m))
		if err != nil {
			return nil, err
		}
		at.regions++
		r.memory = at
		if m.Kind == transport.HostMemory { // a CPU cannot place messages in GPU memory
			if !at.own {
				at.pinned.Pin(unsafe.SliceData(m.Bytes))
			}
			c.engine.worker.OpenRegion(r.id, at.Memory)
		}
	}
	t.next++
	if t.byID == nil {
		t.byID = make(map[uint32]*region)
	}
	t.byID[r.id] = r
	return r, nil
}

// mapped returns the mapping of a span, new or old.
func (c *connection) mapped(s span) (*mapping, error) {
	t := &c.regions
	if m := t.mappings[s]; m != nil {
		return m, nil
	}
	memory, err := c.engine.worker.Map(s.address, s.length, c.gpu.memoryType())
	if err != nil {
		return nil, err
	}
	return t.keep(s, &mapping{Memory: memory}), nil
}

func (t *regionTable) keep(s span, m *mapping) *mapping {
	if t.mappings == nil {
		t.mappings = make(map[span]*mapping)
	}
	t.mappings[s] = m
	return m
}

// deregister ends a region. It returns ErrBusy while a transfer uses the region.
func (c *connection) deregister(id uint32) (err error) {
	if !c.engine.do(func() { err = c.unregister(id) }) {
		return c.Err()
	}
	return err
}

// unregister ends a region. The engine must be held.
func (c *connection) unregister(id uint32) error {
	t := &c.regions
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
	if r.memory == nil {
		return nil
	}
	c.engine.worker.CloseRegion(id)
	if r.memory.regions--; r.memory.regions > 0 || r.memory.own {
		return nil
	}
	return c.drop(span{r.memory.Address, r.memory.Length})
}

// drop unmaps a span. The engine must be held and the table locked.
func (c *connection) drop(s span) error {
	m := c.regions.mappings[s]
	delete(c.regions.mappings, s)
	defer m.pinned.Unpin()
	return c.engine.worker.Unmap(m.Memory)
}

// unmapAll ends every registration after the endpoint has ended. Memory that UCX
// allocated stays until it is freed. The engine must be held.
func (c *connection) unmapAll() {
	c.regions.mu.Lock()
	defer c.regions.mu.Unlock()
	for s, m := range c.regions.mappings {
		m.regions = 0
		if !m.own {
			// Ignore the error: the worker is about to be freed.
			_ = c.drop(s)
		}
	}
	c.regions.byID = nil
}

// covers reports whether a region overlaps a range of device memory.
func (t *regionTable) covers(at cudadrv.DevicePointer, size int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for s, m := range t.mappings {
		if m.regions > 0 && s.address < uintptr(at)+uintptr(size) && uintptr(at) < s.address+uintptr(s.length) {
			return true
		}
	}
	return false
}

// empty reports whether no memory is mapped.
func (t *regionTable) empty() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.mappings) == 0
}

// Allocate implements transport.Allocator. Shared memory is one-sided only in a segment
// that UCX allocated. Other lanes take any memory, so Allocate returns ErrUnsupported
// for them.
func (c *connection) Allocate(size int64) (m transport.Memory, err error) {
	if !c.family.ownMemory {
		return m, fmt.Errorf("allocate for %v: %w", c.family, transport.ErrUnsupported)
	}
	if size <= 0 {
		return m, fmt.Errorf("allocate %d bytes: %w", size, transport.ErrBounds)
	}
	ran := c.engine.do(func() {
		var memory ucx.Memory
		if memory, err = c.engine.worker.Allocate(size); err != nil {
			return
		}
		m = transport.HostBytes(unsafe.Slice((*byte)(memory.Pointer()), size))
		c.regions.mu.Lock()
		defer c.regions.mu.Unlock()
		c.regions.keep(spanOf(m), &mapping{Memory: memory, own: true})
	})
	if !ran {
		return m, c.Err()
	}
	if err != nil {
		return m, explainRegistration(err, transport.HostMemory, size)
	}
	return m, nil
}

// Free implements transport.Allocator.
func (c *connection) Free(m transport.Memory) (err error) {
	free := func() { err = c.free(m) }
	if !c.engine.do(free) {
		c.engine.afterwards(free)
	}
	return err
}

// free frees memory from Allocate. The engine must be held.
func (c *connection) free(m transport.Memory) error {
	c.regions.mu.Lock()
	defer c.regions.mu.Unlock()
	s := spanOf(m)
	known := c.regions.mappings[s]
	switch {
	case known == nil || !known.own:
		return fmt.Errorf("free memory that was not allocated here: %w", transport.ErrRegion)
	case known.regions > 0:
		return fmt.Errorf("free memory that is registered: %w", transport.ErrBusy)
	}
	return c.drop(s)
}
