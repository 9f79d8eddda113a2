package cuda

import (
	"fmt"
	"sync"

	"kvbench/internal/cudadrv"
	"kvbench/transport"
)

// uses counts the transfers that use memory, here or at the peer.
type uses struct {
	mu   sync.Mutex
	n    int
	over bool
	idle chan struct{} // closed when over and n is 0
}

func newUses() uses { return uses{idle: make(chan struct{})} }

// acquire adds a use. It returns false if the memory is withdrawn.
func (u *uses) acquire() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.over {
		return false
	}
	u.n++
	return true
}

func (u *uses) release() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.n--; u.n == 0 && u.over {
		close(u.idle)
	}
}

// withdraw allows no new use. It returns false if the memory was withdrawn before.
func (u *uses) withdraw() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.over {
		return false
	}
	u.over = true
	if u.n == 0 {
		close(u.idle)
	}
	return true
}

func (u *uses) withdrawn() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.over
}

// withdrawUnused withdraws memory that nothing uses. It returns false if the memory is
// in use or withdrawn.
func (u *uses) withdrawUnused() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.over || u.n > 0 {
		return false
	}
	u.over = true
	close(u.idle)
	return true
}

// region is memory registered at this side.
type region struct {
	uses
	id      uint32
	pointer cudadrv.DevicePointer
	size    int64
	context *cudadrv.Context

	// Target only: the export, whether the region was advertised, and a channel that is
	// closed when the initiator has closed the region.
	export     cudadrv.Exported
	advertised bool
	released   chan struct{}
}

// confirm records that the initiator has closed a withdrawn region. It returns false if
// the region was not withdrawn, or was confirmed before. Only one goroutine may call
// it.
func (r *region) confirm() bool {
	if !r.withdrawn() {
		return false
	}
	select {
	case <-r.released:
		return false
	default:
		close(r.released)
		return true
	}
}

// regionTable holds the registered memory of one side.
type regionTable struct {
	mu   sync.Mutex
	last uint32
	byID map[uint32]*region
}

// checkMemory returns an error if memory cannot be registered.
func checkMemory(m transport.Memory) error {
	if m.Kind != transport.CUDAMemory {
		return fmt.Errorf("register %s memory for cuda, which moves GPU memory only: %w", m.Kind, transport.ErrUnsupported)
	}
	if m.Length < 1 {
		return fmt.Errorf("register %d bytes of GPU memory: %w", m.Length, transport.ErrBounds)
	}
	return nil
}

// add creates a region of checked memory.
func (t *regionTable) add(c *cudadrv.Context, m transport.Memory, x cudadrv.Exported) *region {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID == nil {
		t.byID = make(map[uint32]*region)
	}
	t.last++
	r := &region{
		uses: newUses(), id: t.last, pointer: cudadrv.DevicePointer(m.Pointer), size: m.Length, context: c,
		export: x, released: make(chan struct{}),
	}
	t.byID[r.id] = r
	return r
}

// get returns a region, or nil if there is none.
func (t *regionTable) get(id uint32) *region {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[id]
}

func (t *regionTable) remove(id uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byID, id)
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

// known reports whether a region was advertised.
func (t *regionTable) known(r *region) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return r.advertised
}

// advertise marks a region as advertised and returns it, or returns nil if there is
// none.
func (t *regionTable) advertise(id uint32) *region {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.byID[id]
	if r != nil {
		r.advertised = true
	}
	return r
}
