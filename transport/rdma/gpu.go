package rdma

import (
	"context"
	"errors"
	"fmt"

	"kvbench/internal/cudadrv"
	"kvbench/internal/gpumem"
	"kvbench/internal/hostinfo"
	"kvbench/internal/ucx"
	"kvbench/transport"
)

// gpuSide is this side's GPU of a connection. It is nil for a connection of host
// memory.
type gpuSide struct {
	context *cudadrv.Context
	kind    ucx.MemoryType // the type of its memory as passed to UCX
	peers   []string       // kernel modules that give a NIC access to it
}

// gpuOf opens a context on the GPU of cfg, or returns nil if cfg moves host memory.
func (t Transport) gpuOf(ctx context.Context, cfg transport.Config) (*gpuSide, error) {
	if cfg.Memory != transport.CUDAMemory {
		return nil, nil
	}
	if err := t.CheckDirect(ctx, cfg); err != nil {
		return nil, fmt.Errorf("GPU memory over rdma: %w: %w", transport.ErrUnsupported, err)
	}
	d, err := cudadrv.Open()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", transport.ErrUnavailable, err)
	}
	c, err := d.Context(cfg.GPU)
	if err != nil {
		return nil, err
	}
	g := &gpuSide{context: c, kind: ucx.CUDAMemory, peers: hostinfo.ReadPeerMemory().Modules}
	if t.reachable {
		g.kind = ucx.HostMemory
	}
	return g, nil
}

// memoryType returns the type of the connection's memory for UCX.
func (g *gpuSide) memoryType() ucx.MemoryType {
	if g == nil {
		return ucx.HostMemory
	}
	return g.kind
}

// bind returns the call that binds a thread to the GPU's context. UCX's thread must
// make it first, because UCX calls the driver on that thread.
func (g *gpuSide) bind() (b ucx.Bind) {
	if g != nil {
		b.Function, b.Context = g.context.Binding()
	}
	return b
}

// describe adds the GPU to a path's details.
func (g *gpuSide) describe(details map[string]any) {
	if g == nil {
		return
	}
	dev := g.context.Device
	details["gpu"], details["gpu_name"] = fmt.Sprintf("cuda:%d", dev.Ordinal), dev.Name
	details["gpu_uuid"], details["gpu_pci"] = dev.UUID.String(), dev.PCIBusID
	details["driver_cuda_version"] = g.context.Driver().Version()
	details["peer_memory_modules"] = g.peers
}

// gpuMemory returns the allocator of an endpoint's GPU memory.
func (c *connection) gpuMemory() *gpumem.Owned {
	return gpumem.On(c.gpu.context.Device.Ordinal, c.regions.covers).MadeBy((*cudadrv.Context).AllocForRDMA)
}

// closeWith closes a connection and then frees its allocated GPU memory, unless the
// peer may still access it.
func (c *connection) closeWith(o *gpumem.Owned) error {
	err := c.Close()
	if c.engine.keeps() {
		o.Leave()
		return err
	}
	return errors.Join(err, o.FreeAll())
}

// gpuInitiator is an initiator of GPU memory.
type gpuInitiator struct {
	*initiator
	*gpumem.Owned // takes precedence over the initiator's Allocate and Free, which are for host memory
}

// gpuTarget is a target of GPU memory.
type gpuTarget struct {
	*target
	*gpumem.Owned
}

var (
	_ transport.Allocator = gpuInitiator{}
	_ transport.Copier    = gpuTarget{}
)

// withMemory adds the allocator of GPU memory if the initiator moves GPU memory.
func (in *initiator) withMemory() transport.Initiator {
	if in.gpu == nil {
		return in
	}
	return gpuInitiator{in, in.gpuMemory()}
}

// Close implements transport.Endpoint.
func (g gpuInitiator) Close() error { return g.closeWith(g.Owned) }

// withMemory adds the allocator of GPU memory if the target moves GPU memory.
func (t *target) withMemory() transport.Target {
	if t.gpu == nil {
		return t
	}
	return gpuTarget{t, t.gpuMemory()}
}

// Close implements transport.Endpoint.
func (g gpuTarget) Close() error { return g.closeWith(g.Owned) }
