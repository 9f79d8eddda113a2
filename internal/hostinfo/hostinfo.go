// Package hostinfo says where a run took place: the host, its processors and
// memory, and the network interface on the path. It reads and changes nothing else.
package hostinfo

import (
	"net"
	"os"
	"runtime"
)

// Host describes this machine as far as the system tells; what it does not is zero.
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
	// BytesPerSecond is the line rate of a physical interface, one way. Virtual
	// ones claim rates that mean nothing, so theirs is 0.
	BytesPerSecond float64 `json:"bytes_per_second,omitempty"`
	// ShapedBytesPerSecond is the rate to which this host's own traffic control
	// (tbf) shapes what the interface sends; 0 without.
	ShapedBytesPerSecond float64 `json:"shaped_bytes_per_second,omitempty"`
}

// RealRate is the rate, bytes a second, that the interface can have: that of the
// hardware or of the shaper, whichever is lower; 0 where neither is known.
func (d Device) RealRate() float64 {
	switch {
	case d.ShapedBytesPerSecond == 0:
		return d.BytesPerSecond
	case d.BytesPerSecond == 0:
		return d.ShapedBytesPerSecond
	}
	return min(d.BytesPerSecond, d.ShapedBytesPerSecond)
}

// Gather describes the host, and the interface that has the given address (nil: none).
func Gather(local net.Addr) Host {
	name, _ := os.Hostname()
	h := Host{Hostname: name, OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Device: DeviceOf(local)}
	h.system()
	return h
}

// PathAddr is the address whose interface carries a connection. Between two
// addresses of one host that is the loopback, whatever interface they belong to.
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

// DeviceOf returns the interface that has a TCP address; the zero Device where there is none.
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
