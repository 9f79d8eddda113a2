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

// acquire adds a use. It reports false once the memory is withdrawn.
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

// withdraw allows no new use. It reports false if that was so before.
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

// withdrawUnused withdraws memory that nothing uses, and reports whether it did.
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

	// Of a target: what it advertises, whether it has, and what is closed when the
	// initiator has let go of it.
	export     cudadrv.Exported
	advertised bool
	released   chan struct{}
}

// confirm notes that the initiator has let go of a withdrawn region. It reports false
// where the region was not withdrawn, or that was said before. One goroutine calls it.
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

// regionTable is one side's registered memory.
type regionTable struct {
	mu   sync.Mutex
	last uint32
	byID map[uint32]*region
}

// checkMemory says what keeps memory from being registered, or nil.
func checkMemory(m transport.Memory) error {
	if m.Kind != transport.CUDAMemory {
		return fmt.Errorf("register %s memory for cuda, which moves GPU memory only: %w", m.Kind, transport.ErrUnsupported)
	}
	if m.Length < 1 {
		return fmt.Errorf("register %d bytes of GPU memory: %w", m.Length, transport.ErrBounds)
	}
	return nil
}

// add makes a region of memory that was checked.
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

// get returns a region, or nil.
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

// covers reports whether a region lies in a piece of memory.
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

// known reports whether the peer was told of a region.
func (t *regionTable) known(r *region) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return r.advertised
}

// advertise returns a region, noted as known to the peer, or nil.
func (t *regionTable) advertise(id uint32) *region {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.byID[id]
	if r != nil {
		r.advertised = true
	}
	return r
}
