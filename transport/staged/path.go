package staged

import (
	"fmt"

	"kvbench/transport"
)

// Path implements transport.Endpoint: the path of the inner connection, with the
// staging data added.
func (c *connection) Path() transport.Path {
	p := c.inner.Path()
	p.Staging = &transport.Staging{
		Reason: c.reason, ChunkBytes: chunkBytes, PinnedBytes: ringBytes, PinSeconds: c.ring.took.Seconds(),
		ToHost: c.out.meter.read(), FromHost: c.in.meter.read(),
	}
	if c.wire != nil {
		p.Staging.Wire = c.wire.read()
	}
	details := map[string]any{
		"gpu": fmt.Sprintf("cuda:%d", c.context.Device.Ordinal), "gpu_name": c.context.Device.Name,
		"gpu_uuid": c.context.Device.UUID.String(), "gpu_pci": c.context.Device.PCIBusID,
		"driver_cuda_version": c.context.Driver().Version(), "batched_copies": c.context.Driver().Batches(),
	}
	for k, v := range p.Details {
		details[k] = v
	}
	p.Details = details
	return p
}
