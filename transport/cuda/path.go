package cuda

import (
	"fmt"
	"maps"

	"kvbench/internal/cudadrv"
	"kvbench/transport"
)

// path returns the path between the devices of both sides. The first call with both
// devices set looks up the link.
func (c *connection) path(own *cudadrv.Device, peer *cudadrv.UUID) transport.Path {
	p := transport.Path{Lane: "cuda/not yet known", Details: map[string]any{"driver_cuda_version": c.driver.Version()}}
	if own == nil {
		return p
	}
	p.Device = fmt.Sprintf("cuda:%d", own.Ordinal)
	p.Details["device"] = own.Name
	p.Details["device_uuid"] = own.UUID.String()
	p.Details["device_pci"] = own.PCIBusID
	if peer != nil {
		p.Details["peer_device_uuid"] = peer.String()
		c.joined.once.Do(func() { c.joined.interconnect = between(own.UUID, *peer) })
		p.Lane = c.joined.lane
		maps.Copy(p.Details, c.joined.details)
	}
	return p
}

// Path implements transport.Endpoint.
func (t *target) Path() transport.Path {
	p := t.path(t.device.Load(), t.peer.Load())
	if kind := t.shares.Load(); kind != nil {
		p.Details["handles"] = string(*kind)
	}
	return p
}

// Path implements transport.Endpoint. Its details hold the time to open the peer's
// memory, and the times of the copies: by events on the device, and by this process's
// clock, which includes launching them.
func (in *initiator) Path() transport.Path {
	in.setting.Lock()
	defer in.setting.Unlock()
	if in.context == nil {
		return in.path(nil, nil)
	}
	p := in.path(&in.context.Device, in.peer)
	if in.shares != "" {
		p.Details["handles"] = string(in.shares)
	}
	p.Details["batched_copies"] = in.driver.Batches()
	p.Details["opened"] = in.opens.opened
	p.Details["opened_before"] = in.opens.reused
	p.Details["open_seconds"] = in.opens.took.Seconds()
	var streams []streamStats
	for _, l := range in.lanes {
		streams = append(streams, l.stats())
	}
	p.Details["streams"] = streams
	return p
}

// streamStats holds the times of a stream's copies. A part is a stream's share of a
// transfer.
type streamStats struct {
	Parts         int64   `json:"parts"`
	Copies        int64   `json:"copies"`
	DeviceSeconds float64 `json:"device_seconds"` // by events around each part
	ClockSeconds  float64 `json:"clock_seconds"`  // from adding each part until its end was seen
	LaunchSeconds float64 `json:"launch_seconds"` // part of ClockSeconds inside the calls that add copies
}

func (l *lane) stats() streamStats {
	return streamStats{
		l.parts.Load(), l.copied.Load(),
		float64(l.onDevice.Load()) / 1e9, float64(l.onClock.Load()) / 1e9, float64(l.inCalls.Load()) / 1e9,
	}
}
