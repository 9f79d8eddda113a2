package cuda

import (
	"errors"
	"fmt"

	"kvbench/internal/cudadrv"
	"kvbench/transport"
)

// sharing is how an allocation is opened in the other process.
type sharing string

const (
	byHandle     sharing = "legacy"   // by a legacy IPC handle
	byDescriptor sharing = "posix_fd" // by a file descriptor that the local socket carries
)

// descriptors says whether a process's device shares memory by file descriptors. The
// zero value is what a process says that knows nothing of it.
type descriptors struct {
	Shared bool   `json:"shared"`
	Lacks  string `json:"lacks,omitempty"` // why not
}

// descriptorsOf asks the driver about a device.
func descriptorsOf(d *cudadrv.Driver, ordinal int) descriptors {
	dev, err := d.Device(ordinal)
	if err == nil {
		err = d.CheckShareable(dev)
	}
	if err != nil {
		return descriptors{Lacks: err.Error()}
	}
	return descriptors{Shared: true}
}

// why is the reason to tell.
func (d descriptors) why() string {
	if d.Lacks == "" {
		return "it did not say that it can"
	}
	return fmt.Sprintf("%.300s", d.Lacks) // the peer's words may be long
}

// party is one side of a connection that is to be.
type party struct {
	host identity
	fds  descriptors
}

// agree says how memory gets from one side to the other: by legacy handles where noHandles
// is nil, and otherwise by file descriptors alone, with noHandles as the reason. The error
// wraps transport.ErrUnavailable.
func (own party) agree(peer party) (noHandles, err error) {
	noHandles = own.host.opensHandlesOf(peer.host)
	if noHandles == nil || !errors.Is(noHandles, errNamespaces) {
		return nil, noHandles
	}
	for _, side := range []struct {
		name string
		fds  descriptors
	}{{"this side", own.fds}, {"the peer", peer.fds}} {
		if !side.fds.Shared {
			return nil, fmt.Errorf("%w; nor can file descriptors carry the memory across, at %s: %s", noHandles, side.name, side.fds.why())
		}
	}
	return noHandles, nil
}

// makeMemory makes memory that the peer can open.
func (c *connection) makeMemory(on *cudadrv.Context, size int64) (*cudadrv.Buffer, error) {
	if c.noHandles != nil {
		return on.AllocShareable(size)
	}
	b, err := on.AllocExportable(size)
	if err != nil {
		return nil, err
	}
	_, err = on.Export(b.Pointer)
	if !errors.Is(err, cudadrv.NotSupported) || c.driver.CheckShareable(on.Device) != nil {
		return b, nil // what else is wrong, a target's Register says; an initiator's memory needs no handle
	}
	if err := b.Free(); err != nil {
		return nil, err
	}
	return on.AllocShareable(size)
}

// export describes the allocation of registered memory to the peer.
func (c *connection) export(on *cudadrv.Context, m transport.Memory) (cudadrv.Exported, error) {
	x, err := on.Export(cudadrv.DevicePointer(m.Pointer))
	switch {
	case errors.Is(err, cudadrv.NotSupported):
		if lacks := c.driver.CheckShareable(on.Device); lacks != nil {
			return x, fmt.Errorf("%w: %w; nor by file descriptor, at this side: %w: use the transport tcp with GPU memory", transport.ErrUnsupported, err, lacks)
		}
		return x, fmt.Errorf("%w: %w; the memory that the connection allocates is shared by file descriptors instead", transport.ErrUnsupported, err)
	case err == nil && !x.Shareable && c.noHandles != nil:
		return x, fmt.Errorf("register memory that has legacy handles only: %w; or register memory that the connection allocates, which file descriptors share", c.noHandles)
	}
	return x, err
}
