package cuda

import (
	"maps"
	"slices"
	"sync"

	"kvbench/internal/cudadrv"
)

// remoteRegion is a region of the target. Its mapping is set before the first transfer
// uses it, and cleared after the last.
type remoteRegion struct {
	uses
	advertised
	mapping *mapping
}

// at returns the address of the region in this process.
func (r *remoteRegion) at() cudadrv.DevicePointer {
	return r.mapping.base + cudadrv.DevicePointer(r.Offset)
}

// unmap releases the region's mapping.
func (r *remoteRegion) unmap() error {
	m := r.mapping
	if m == nil {
		return nil
	}
	r.mapping = nil
	return m.release()
}

// remoteTable holds the regions that the target has advertised or withdrawn.
type remoteTable struct {
	mu   sync.Mutex
	byID map[uint32]*remoteRegion
}

func (t *remoteTable) get(id uint32) *remoteRegion {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[id]
}

// add stores a region, unless there is one with the same ID, and returns the stored
// one.
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
