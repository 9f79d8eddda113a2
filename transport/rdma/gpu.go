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

// gpuSide is the GPU whose memory a connection moves, at this side. A nil one is that
// of a connection of host memory.
type gpuSide struct {
	context *cudadrv.Context
	kind    ucx.MemoryType // what UCX is told of its memory
	peers   []string       // the modules that let a NIC reach it
}

// gpuOf starts the GPU of connections with cfg; nil where they move host memory.
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

// memoryType is what UCX is told of the connection's memory.
func (g *gpuSide) memoryType() ucx.MemoryType {
	if g == nil {
		return ucx.HostMemory
	}
	return g.kind
}

// bind is what the thread that calls UCX does first: UCX calls the driver on it.
func (g *gpuSide) bind() (b ucx.Bind) {
	if g != nil {
		b.Function, b.Context = g.context.Binding()
	}
	return b
}

// describe adds to a path's details.
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

// gpuMemory is what an endpoint makes of its GPU's memory.
func (c *connection) gpuMemory() *gpumem.Owned {
	return gpumem.On(c.gpu.context.Device.Ordinal, c.regions.covers).MadeBy((*cudadrv.Context).AllocForRDMA)
}

// closeWith ends a connection and then frees what it made of the GPU's memory, unless
// the peer may yet touch it.
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
	*gpumem.Owned // before the initiator's own Allocate and Free, which are of host memory
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

// withMemory is the initiator with what it makes memory by.
func (in *initiator) withMemory() transport.Initiator {
	if in.gpu == nil {
		return in
	}
	return gpuInitiator{in, in.gpuMemory()}
}

// Close implements transport.Endpoint.
func (g gpuInitiator) Close() error { return g.closeWith(g.Owned) }

// withMemory is the target with what it makes memory by.
func (t *target) withMemory() transport.Target {
	if t.gpu == nil {
		return t
	}
	return gpuTarget{t, t.gpuMemory()}
}

// Close implements transport.Endpoint.
func (g gpuTarget) Close() error { return g.closeWith(g.Owned) }
