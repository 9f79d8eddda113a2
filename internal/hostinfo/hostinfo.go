// Package hostinfo reads facts about this machine: the host, its processors, memory, GPUs
// and limits, its network interfaces and RDMA devices. It changes nothing.
package hostinfo

import (
	"net"
	"os"
	"runtime"
)

// Host describes this machine. Fields that the system does not report are zero.
type Host struct {
	Hostname       string `json:"hostname"`
	OS             string `json:"os"`
	Kernel         string `json:"kernel,omitempty"`
	Arch           string `json:"arch"`
	CPU            string `json:"cpu,omitempty"`
	CPUs           int    `json:"cpus"`
	MemoryBytes    int64  `json:"memory_bytes,omitempty"`
	AvailableBytes int64  `json:"available_bytes,omitempty"`
	Device         Device `json:"device"` // network interface on the path
}

// Device is a network interface.
type Device struct {
	Name     string `json:"name,omitempty"`
	MTU      int    `json:"mtu,omitempty"`
	Loopback bool   `json:"loopback,omitempty"`
	// BytesPerSecond is the line rate of a physical interface, one way. It is 0 for a
	// virtual interface: the rates that these report are meaningless.
	BytesPerSecond float64 `json:"bytes_per_second,omitempty"`
	// ShapedBytesPerSecond is the limit that this host's traffic control (tbf) sets on the
	// interface's output; 0 without shaping.
	ShapedBytesPerSecond float64 `json:"shaped_bytes_per_second,omitempty"`
}

// RealRate is the rate, in bytes a second, that the interface can reach: the lower of line
// rate and shaped rate; 0 if both are unknown.
func (d Device) RealRate() float64 {
	switch {
	case d.ShapedBytesPerSecond == 0:
		return d.BytesPerSecond
	case d.BytesPerSecond == 0:
		return d.ShapedBytesPerSecond
	}
	return min(d.BytesPerSecond, d.ShapedBytesPerSecond)
}

// Gather describes the host, and the interface with the given address (nil: none).
func Gather(local net.Addr) Host {
	name, _ := os.Hostname()
	h := Host{Hostname: name, OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Device: DeviceOf(local)}
	h.system()
	return h
}

// PathAddr is the address of the interface that carries a connection. Between two equal
// addresses that is the loopback, whichever interface has the address.
func PathAddr(c interface {
	LocalAddr() net.Addr
	RemoteAddr() net.Addr
}) net.Addr {
	local, okLocal := c.LocalAddr().(*net.TCPAddr)
	remote, okRemote := c.RemoteAddr().(*net.TCPAddr)
	if okLocal && okRemote && local.IP.Equal(remote.IP) {
		return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}
	}
	return c.LocalAddr()
}

// DeviceOf returns the interface with a TCP address; the zero Device if there is none.
func DeviceOf(addr net.Addr) Device {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return Device{}
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return Device{}
	}
	for _, i := range interfaces {
		addrs, err := i.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && (n.IP.Equal(tcp.IP) || i.Flags&net.FlagLoopback != 0 && n.Contains(tcp.IP)) {
				return Device{Name: i.Name, MTU: i.MTU, Loopback: i.Flags&net.FlagLoopback != 0, BytesPerSecond: lineRate(i.Name), ShapedBytesPerSecond: shapedRate(i.Index)}
			}
		}
	}
	return Device{}
}
