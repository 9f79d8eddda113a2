package cuda

import (
	"sync"

	"kvbench/internal/cudadrv"
	"kvbench/internal/nvml"
)

// interconnect describes the link between two devices.
type interconnect struct {
	lane    string
	details map[string]any
}

// joined caches the link between a connection's devices.
type joined struct {
	once sync.Once
	interconnect
}

// between returns the link between two devices, as reported by NVML. For one device it
// returns a fixed text, because a copy within the device uses no link.
func between(own, peer cudadrv.UUID) interconnect {
	if own == peer {
		return interconnect{"cuda/same device (HBM copy)", map[string]any{"link": "same device"}}
	}
	l, err := nvml.Between(own.String(), peer.String())
	switch {
	case err != nil:
		return interconnect{"cuda/peer, link unknown: " + err.Error(), map[string]any{"link": "unknown"}}
	case l.NVLink != nil:
		return interconnect{"cuda/" + l.String(), nvlinkDetails(*l.NVLink)}
	}
	return interconnect{"cuda/" + l.String(), map[string]any{
		"link": "pcie", "pcie_topology": l.Topology.Name, "pcie": l.Own, "peer_pcie": l.Peer,
	}}
}

func nvlinkDetails(n nvml.NVLink) map[string]any {
	details := map[string]any{"link": "nvlink", "nvlinks": n.Links, "nvswitch": n.Switch}
	if n.Generation > 0 {
		details["nvlink_generation"] = n.Generation
	}
	return details
}
