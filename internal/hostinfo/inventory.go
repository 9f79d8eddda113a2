package hostinfo

// Inventory lists the hardware and limits that matter for moving KV. Missing lists the
// parts that the host lacks or the system does not report.
type Inventory struct {
	NICs    []NIC
	RDMA    []RDMADevice
	GPUs    []GPU
	NUMA    []NUMANode
	Limits  Limits
	Missing []Missing
}

// Missing is an absent part of the inventory, such as rdma.
type Missing struct {
	Name string
	Fault
}

// inventory reads all parts but the network interfaces, which do not come from files, and
// joins the interfaces with them.
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
