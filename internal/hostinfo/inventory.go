package hostinfo

// Inventory is what a host has to move KV with. Parts that the host lacks, or that the system
// does not tell of, are in Missing.
type Inventory struct {
	NICs    []NIC
	RDMA    []RDMADevice
	GPUs    []GPU
	NUMA    []NUMANode
	Limits  Limits
	Missing []Missing
}

// Missing is a part of the inventory of which there is nothing: rdma, say.
type Missing struct {
	Name string
	Fault
}

// inventory reads everything but the network interfaces, which do not come from
// files, and joins them with the rest.
func (t tree) inventory(nics []NIC, mapped func(netdev string) string) Inventory {
	i := Inventory{NICs: nics, NUMA: t.numaNodes(), Limits: t.limits()}
	var noRDMA, noGPU Fault
	i.RDMA, noRDMA = t.rdmaDevices()
	i.GPUs, noGPU = t.gpus()
	i.lacks("rdma", noRDMA)
	i.lacks("gpu", noGPU)
	if len(i.RDMA) > 0 && len(i.GPUs) > 0 && !i.Limits.PeerMemory.Possible() {
		i.lacks("peer memory", Fault{"nothing lets RDMA devices reach GPU memory: neither nvidia_peermem nor a driver with dma-buf is loaded", "modprobe nvidia-peermem, or NVIDIA's open kernel modules on Linux 5.12 or newer"})
	}
	for n := range i.NICs {
		t.describe(&i.NICs[n])
	}
	joinRDMA(i.NICs, i.RDMA, mapped)
	sortNICs(i.NICs)
	return i
}

func (i *Inventory) lacks(name string, f Fault) {
	if f != (Fault{}) {
		i.Missing = append(i.Missing, Missing{name, f})
	}
}
