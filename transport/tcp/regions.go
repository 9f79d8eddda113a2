package tcp

import (
	"fmt"
	"sync"
	"sync/atomic"

	"kvbench/transport"
)

// region is registered memory and the number of its current uses.
type region struct {
	id  uint32
	mem []byte

	mu   sync.Mutex
	uses int // guarded by mu; -1 once deregistered
}

// acquire marks the region as in use. It returns false if the region is deregistered.
func (r *region) acquire() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.uses < 0 {
		return false
	}
	r.uses++
	return true
}

func (r *region) release() {
	r.mu.Lock()
	r.uses--
	r.mu.Unlock()
}

// regionTable holds the registered memory of one side. Look-ups take no lock.
type regionTable struct {
	mu   sync.Mutex // serializes changes
	next uint32
	byID atomic.Pointer[map[uint32]*region]
}

func (t *regionTable) register(m transport.Memory) (transport.Region, error) {
	if m.Kind != transport.HostMemory {
		return transport.Region{}, fmt.Errorf("register %s memory for tcp: %w", m.Kind, transport.ErrUnsupported)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next++
	r := &region{id: t.next, mem: m.Bytes}
	t.replace(func(regions map[uint32]*region) { regions[r.id] = r })
	return transport.Region{ID: r.id, Size: int64(len(m.Bytes))}, nil
}

func (t *regionTable) deregister(reg transport.Region) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.get(reg.ID)
	if r == nil {
		return fmt.Errorf("deregister region %d: %w", reg.ID, transport.ErrRegion)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.uses > 0 {
		return fmt.Errorf("deregister region %d: %w", reg.ID, transport.ErrBusy)
	}
	r.uses = -1
	t.replace(func(regions map[uint32]*region) { delete(regions, reg.ID) })
	return nil
}

// replace publishes a changed copy of the table.
func (t *regionTable) replace(change func(map[uint32]*region)) {
	next := make(map[uint32]*region)
	if old := t.byID.Load(); old != nil {
		for id, r := range *old {
			next[id] = r
		}
	}
	change(next)
	t.byID.Store(&next)
}

// get returns the region, or nil if there is none.
func (t *regionTable) get(id uint32) *region {
	if m := t.byID.Load(); m != nil {
		return (*m)[id]
	}
	return nil
}
