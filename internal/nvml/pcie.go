package nvml

import "fmt"

// topologies are the nearest common ancestors of two GPUs (nvmlGpuTopologyLevel_t).
var topologies = map[uint32]Topology{
	0:  {"internal", "within one board"},
	10: {"single", "through one PCIe switch"},
	20: {"multiple", "through several PCIe switches"},
	30: {"hostbridge", "through one host bridge"},
	40: {"node", "between host bridges of one NUMA node"},
	50: {"system", "between NUMA nodes"},
}

// pcie is a GPU's link to PCI Express.
func (d device) pcie() (PCIe, error) {
	var p PCIe
	for _, ask := range []struct {
		call symbol
		to   *int
	}{
		{symGetCurrPCIeGeneration, &p.Generation},
		{symGetMaxPCIeGeneration, &p.MaxGeneration},
		{symGetCurrPCIeWidth, &p.Width},
		{symGetMaxPCIeWidth, &p.MaxWidth},
	} {
		n, err := d.number(ask.call)
		if err != nil {
			return p, err
		}
		*ask.to = int(n)
	}
	return p, nil
}

// topology is the nearest common ancestor of two GPUs on PCI Express.
func (d device) topology(peer device) (Topology, error) {
	level, err := d.numberOf(symGetTopologyCommonAncestor, peer.handle)
	if err != nil {
		return Topology{}, err
	}
	t, ok := topologies[level]
	if !ok {
		return t, fmt.Errorf("%w what lies between the two (topology level %d)", ErrUnclear, level)
	}
	return t, nil
}
