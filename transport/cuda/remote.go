package cuda

import (
	"maps"
	"slices"
	"sync"

	"kvbench/internal/cudadrv"
)

// remoteRegion is a region of the target's. Its mapping is set before a transfer
// uses it and cleared when none can any more.
type remoteRegion struct {
	uses
	advertised
	mapping *mapping
}

// at is the address of the region here.
func (r *remoteRegion) at() cudadrv.DevicePointer {
	return r.mapping.base + cudadrv.DevicePointer(r.Offset)
}

// unmap closes the region here.
func (r *remoteRegion) unmap() error {
	m := r.mapping
	if m == nil {
		return nil
	}
	r.mapping = nil
	return m.release()
}

// remoteTable is what the target has advertised, with what it has withdrawn since.
type remoteTable struct {
	mu   sync.Mutex
	byID map[uint32]*remoteRegion
}

func (t *remoteTable) get(id uint32) *remoteRegion {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[id]
}

// add takes a region in, unless there is one of that ID, and returns which is there.
func (t *remoteTable) add(r *remoteRegion) *remoteRegion {
	t.mu.Lock()
	defer t.mu.Unlock()
	if there := t.byID[r.ID]; there != nil {
		return there
	}
	if t.byID == nil {
		t.byID = make(map[uint32]*remoteRegion)
	}
	t.byID[r.ID] = r
	return r
}

func (t *remoteTable) remove(r *remoteRegion) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byID, r.ID)
}

func (t *remoteTable) all() []*remoteRegion {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.byID))
}
