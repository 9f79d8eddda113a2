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

// mapping is another process's allocation as a device of this one sees it.
type mapping struct {
	key  mappingKey
	base cudadrv.DevicePointer
	took time.Duration // to open it

	users int // guarded by mappings.mu
}

type mappingKey struct {
	context *cudadrv.Context
	handle  [cudadrv.HandleSize]byte
}

// mappings are the process's: an allocation that several regions or connections
// use is opened once, and closed with the last of them.
var mappings = struct {
	mu    sync.Mutex
	byKey map[mappingKey]*mapping
}{byKey: make(map[mappingKey]*mapping)}

// openMapping returns an allocation of the peer's, opened now or before; fresh
// says which. Each needs a release.
func openMapping(c *cudadrv.Context, a advertised) (m *mapping, fresh bool, err error) {
	key := mappingKey{c, [cudadrv.HandleSize]byte(a.Handle)}
	mappings.mu.Lock()
	defer mappings.mu.Unlock()
	if m := mappings.byKey[key]; m != nil {
		m.users++
		return m, false, nil
	}
	owner := cudadrv.UUID(a.Device)
	visible, err := checkPeerAccess(c, owner)
	if err != nil {
		return nil, false, err
	}
	start := time.Now()
	base, err := c.OpenHandle(key.handle)
	if err != nil {
		return nil, false, explainOpen(err, c, owner, visible)
	}
	m = &mapping{key: key, base: base, took: time.Since(start), users: 1}
	mappings.byKey[key] = m
	return m, true, nil
}

// release ends one use of a mapping.
func (m *mapping) release() error {
	mappings.mu.Lock()
	defer mappings.mu.Unlock()
	if m.users--; m.users > 0 {
		return nil
	}
	delete(mappings.byKey, m.key)
	return m.key.context.CloseHandle(m.base)
}

// checkPeerAccess makes sure that a device reaches the owner's, if this process
// can tell: visible says whether it sees the owner's device.
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

// explainOpen adds to the error of an open what may be done.
func explainOpen(err error, c *cudadrv.Context, owner cudadrv.UUID, visible bool) error {
	err = fmt.Errorf("open the peer's GPU memory: %w", err)
	switch {
	case errors.Is(err, cudadrv.ErrTooOld):
		return err
	case errors.Is(err, cudadrv.PeerAccessUnsupported):
		return fmt.Errorf("%w: %w", noPeerAccess(c.Device, owner), err)
	case !visible:
		return fmt.Errorf("%w; its device %v is not visible in this process (CUDA_VISIBLE_DEVICES=%q): let both see both devices", err, owner, os.Getenv("CUDA_VISIBLE_DEVICES"))
	case errors.Is(err, cudadrv.InvalidContext):
		return fmt.Errorf("%w; a handle does not open in the process that made it", err)
	case errors.Is(err, cudadrv.InvalidHandle):
		return fmt.Errorf("%w; the peer has freed it or gone, or its memory cannot be shared with legacy IPC handles, as that of cuMemCreate and cudaMallocAsync", err)
	case errors.Is(err, cudadrv.OutOfMemory):
		return fmt.Errorf("%w; end what else uses the device (nvidia-smi shows it)", err)
	}
	return err
}
