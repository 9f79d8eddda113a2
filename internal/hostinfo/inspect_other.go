//go:build !linux

package hostinfo

import "net"

// Inspect lists the network interfaces, the only part available on this system.
func Inspect() Inventory {
	var i Inventory
	interfaces, err := net.Interfaces()
	if err != nil {
		i.lacks("nic", Fault{"list network interfaces: " + err.Error(), "run as a user who may"})
	}
	for _, n := range interfaces {
		nic := NIC{Device: Device{Name: n.Name, MTU: n.MTU, Loopback: n.Flags&net.FlagLoopback != 0}, State: "down", NUMANode: UnknownNode}
		if n.Flags&net.FlagRunning != 0 {
			nic.State = "up"
		}
		if nic.Loopback {
			nic.Class = Loopback
		}
		i.NICs = append(i.NICs, nic)
	}
	i.lacks("rdma", Fault{"RDMA devices, GPUs, NUMA nodes, limits and the rates of interfaces are read on Linux only", "run kvbench devices on the Linux hosts that the data moves between"})
	return i
}
