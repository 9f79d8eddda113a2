package hostinfo

import (
	"fmt"
	"net"

	"github.com/Mellanox/rdmamap"
	"github.com/vishvananda/netlink"
)

// nics lists the interfaces of this process's network namespace.
func nics() ([]NIC, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	list := make([]NIC, 0, len(links))
	for _, l := range links {
		a := l.Attrs()
		n := NIC{
			Device: Device{Name: a.Name, MTU: a.MTU, Loopback: a.Flags&net.FlagLoopback != 0, ShapedBytesPerSecond: shapedRate(a.Index)},
			State:  a.OperState.String(), address: a.HardwareAddr,
		}
		if l.Type() != "device" { // the type that drivers for hardware leave unset
			n.Type = l.Type()
		}
		list = append(list, n)
	}
	return list, nil
}

// rdmaDeviceOf returns the RDMA device of a network interface, empty if it has none.
func rdmaDeviceOf(netdev string) string {
	d, err := rdmamap.GetRdmaDeviceForNetdevice(netdev)
	if err != nil {
		return ""
	}
	return d
}
