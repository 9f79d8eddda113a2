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

// descriptors states whether a process's device shares memory by file descriptors. The
// zero value comes from a peer that does not send this field.
type descriptors struct {
	Shared bool   `json:"shared"`
	Lacks  string `json:"lacks,omitempty"` // why not
}

// descriptorsOf checks a device with the driver.
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

// why returns the reason for an error text.
func (d descriptors) why() string {
	if d.Lacks == "" {
		return "it did not say that it can"
	}
	return fmt.Sprintf("%.300s", d.Lacks) // the peer's text may be long
}

// party is one side of a connection that is being made.
type party struct {
	host identity
	fds  descriptors
}

// agree returns how memory is shared between the sides. If noHandles is nil, legacy
// handles work. Otherwise only file descriptors work, and noHandles is the reason. The
// error wraps transport.ErrUnavailable.
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

// makeMemory allocates memory that the peer can open.
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
		return b, nil // a target's Register reports any other error; an initiator's memory needs no handle
	}
	if err := b.Free(); err != nil {
		return nil, err
	}
	return on.AllocShareable(size)
}

// export exports the allocation of registered memory for the peer.
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
