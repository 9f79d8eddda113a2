package cuda

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"kvbench/internal/cudadrv"
	"kvbench/transport"
)

// mapping is another process's allocation, mapped on a device of this process.
type mapping struct {
	key   mappingKey
	base  cudadrv.DevicePointer
	size  int64 // size in bytes from base, by this side's driver; 0 if the driver does not report it
	close func() error
	took  time.Duration // time to open it

	users int // guarded by mappings.mu
}

type mappingKey struct {
	context *cudadrv.Context
	handle  [cudadrv.HandleSize]byte
}

// mappings holds the mappings of the process. An allocation that several regions or
// connections use is opened once, and closed after its last use.
var mappings = struct {
	mu    sync.Mutex
	byKey map[mappingKey]*mapping
}{byKey: make(map[mappingKey]*mapping)}

// openMapping returns a mapping of the peer's allocation. fresh reports whether this
// call opened it. The caller must release it. If a file descriptor is needed, ask
// fetches it.
func openMapping(c *cudadrv.Context, a advertised, ask func() (*os.File, error)) (m *mapping, fresh bool, err error) {
	key := mappingKey{c, [cudadrv.HandleSize]byte(a.Handle)}
	if m := useMapping(key); m != nil {
		return m, false, nil
	}
	var file *os.File
	if a.Sharing == byDescriptor {
		// Without the lock, because the peer may be slow.
		if file, err = askFor(c, ask); err != nil {
			return nil, false, err
		}
		defer file.Close()
	}
	mappings.mu.Lock()
	defer mappings.mu.Unlock()
	if m := mappings.byKey[key]; m != nil {
		m.users++
		return m, false, nil
	}
	owner := a.owner()
	visible, err := checkPeerAccess(c, owner)
	if err != nil {
		return nil, false, err
	}
	m = &mapping{key: key, users: 1}
	start := time.Now()
	if file != nil {
		err = m.openDescriptor(file, a.Allocation)
	} else {
		err = m.openHandle()
	}
	if err != nil {
		return nil, false, explainOpen(err, c, owner, visible)
	}
	m.took = time.Since(start)
	mappings.byKey[key] = m
	return m, true, nil
}

// useMapping adds a use to an open mapping and returns it, or returns nil.
func useMapping(key mappingKey) *mapping {
	mappings.mu.Lock()
	defer mappings.mu.Unlock()
	m := mappings.byKey[key]
	if m != nil {
		m.users++
	}
	return m
}

// askFor fetches a file descriptor, if the device can import one.
func askFor(c *cudadrv.Context, ask func() (*os.File, error)) (*os.File, error) {
	if err := c.Driver().CheckShareable(c.Device); err != nil {
		return nil, fmt.Errorf("open the peer's GPU memory, which file descriptors share, at this side: %w: %w", transport.ErrUnsupported, err)
	}
	return ask()
}

func (m *mapping) openHandle() (err error) {
	c := m.key.context
	if m.base, err = c.OpenHandle(m.key.handle); err != nil {
		return err
	}
	m.close = func() error { return c.CloseHandle(m.base) }
	if m.size, err = sizeFrom(c, m.base); err != nil {
		return errors.Join(err, m.close())
	}
	return nil
}

// sizeFrom returns the number of bytes of an allocation from an address on. It returns
// 0 if the driver does not report them: its documentation promises an answer only for
// memory that this process allocated.
func sizeFrom(c *cudadrv.Context, at cudadrv.DevicePointer) (int64, error) {
	base, size, err := c.AddressRange(at)
	switch {
	case errors.Is(err, cudadrv.InvalidValue), errors.Is(err, cudadrv.NotFound), errors.Is(err, cudadrv.NotSupported):
		return 0, nil
	case err != nil:
		return 0, err
	}
	return size - int64(at-base), nil
}

// check refuses a region that does not lie in the mapping. It ignores the allocation
// size in the advertisement, because the mapping may have been opened for another
// region with another size.
func (m *mapping) check(a advertised) error {
	if m.size > 0 && a.Offset > m.size-a.Size {
		return fmt.Errorf("open the peer's GPU memory: region %d: %d bytes at offset %d of an allocation that is of %d here: %w",
			a.ID, a.Size, a.Offset, m.size, transport.ErrProtocol)
	}
	return nil
}

func (m *mapping) openDescriptor(file *os.File, size int64) error {
	i, err := m.key.context.ImportDescriptor(file, size)
	if err != nil {
		return err
	}
	m.base, m.size, m.close = i.Pointer, size, i.Close
	return nil
}

// release ends one use of a mapping.
func (m *mapping) release() error {
	mappings.mu.Lock()
	defer mappings.mu.Unlock()
	if m.users--; m.users > 0 {
		return nil
	}
	delete(mappings.byKey, m.key)
	return m.close()
}

// checkPeerAccess returns an error if a device cannot access the owner's device.
// visible is false if this process does not see the owner's device; then access is
// unchecked.
func checkPeerAccess(c *cudadrv.Context, owner cudadrv.UUID) (visible bool, err error) {
	d := c.Driver()
	peer, visible, err := d.ByUUID(owner)
	if err != nil || !visible || peer.Ordinal == c.Device.Ordinal {
		return visible, err
	}
	can, err := d.CanAccessPeer(c.Device, peer)
	if err == nil && !can {
		err = noPeerAccess(c.Device, peer.UUID)
	}
	return visible, err
}

func noPeerAccess(d cudadrv.Device, owner cudadrv.UUID) error {
	return fmt.Errorf("no peer access from CUDA device %d (%v) to the peer's %v: use devices that nvidia-smi topo -p2p r shows as OK, or the transport tcp: %w",
		d.Ordinal, d.UUID, owner, transport.ErrUnsupported)
}

// notVisible returns the text that precedes the error of an open. The driver may return
// the same error for an invisible device as for an unreachable one.
func notVisible(owner cudadrv.UUID) string {
	if owner.MIG {
		// Source: NVIDIA's MIG user guide, "Deployment Considerations".
		return fmt.Sprintf("the peer's device %v is a MIG instance that this process does not see, and CUDA IPC works within a GPU instance only: let both use one, or use the transport tcp; if they do", owner)
	}
	return fmt.Sprintf("the peer's device %v is not visible in this process (CUDA_VISIBLE_DEVICES=%q): let both see both devices; if they do", owner, os.Getenv("CUDA_VISIBLE_DEVICES"))
}

// explainOpen adds advice to the error of an open, and a transport error if one fits.
func explainOpen(err error, c *cudadrv.Context, owner cudadrv.UUID, visible bool) error {
	err = fmt.Errorf("open the peer's GPU memory: %w", err)
	if errors.Is(err, cudadrv.ErrTooOld) {
		return err
	}
	switch {
	case errors.Is(err, cudadrv.PeerAccessUnsupported), errors.Is(err, cudadrv.InvalidDevice): // by handle, by descriptor
		err = fmt.Errorf("%w: %w", noPeerAccess(c.Device, owner), err)
	case errors.Is(err, cudadrv.InvalidContext):
		err = fmt.Errorf("%w; a handle does not open in the process that made it", err)
	case errors.Is(err, cudadrv.InvalidValue) && visible:
		err = fmt.Errorf("%w; what the peer sent is no allocation of the size that it said: %w", err, transport.ErrProtocol)
	case errors.Is(err, cudadrv.InvalidHandle):
		err = fmt.Errorf("%w; the peer has freed it or gone, or its memory cannot be shared with legacy IPC handles, as that of cuMemCreate and cudaMallocAsync", err)
	case errors.Is(err, cudadrv.OutOfMemory):
		err = fmt.Errorf("%w; end what else uses the device (nvidia-smi shows it)", err)
	case errors.Is(err, cudadrv.NotSupported):
		err = fmt.Errorf("%w; this side's driver does not open another process's memory of this kind: use the transport tcp with GPU memory: %w", err, transport.ErrUnsupported)
	}
	if !visible {
		return fmt.Errorf("%s: %w", notVisible(owner), err)
	}
	return err
}
