package rdma

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"kvbench/internal/hostinfo"
	"kvbench/internal/ucx"
	"kvbench/internal/units"
	"kvbench/transport"
)

// usable returns an error if a family cannot be used on this host with the given
// device.
func usable(f family, device string) error {
	if set := os.Getenv("UCX_NET_DEVICES"); set != "" && device != "" && set != device {
		return fmt.Errorf("device %s beside UCX_NET_DEVICES=%s in the environment: leave one of the two out: %w", device, set, transport.ErrUnsupported)
	}
	if !f.rdma {
		return nil
	}
	devices, fault := rdmaDevices()
	if err := check(f, device, devices, fault, os.Getenv("UCX_IB_GID_INDEX")); err != nil {
		return err
	}
	return checkLimit(f, hostinfo.LockLimit())
}

// ownPools is roughly the memory that UCX registers on a device before any data, in
// bytes: the buffers of ud alone take 20 MiB in UCX 1.13.1. Under a lower limit,
// connecting hangs without an error.
const ownPools = 32 << 20

// checkLimit returns an error if the limit of locked memory is too low for UCX.
func checkLimit(f family, limit *hostinfo.Memlock) error {
	if limit == nil || limit.Fault == (hostinfo.Fault{}) || limit.Soft >= ownPools {
		return nil
	}
	return unavailable(f, "%s, and UCX takes more than 20 MiB for itself; mend: %s", limit.Fault.Reason, limit.Fault.Mend)
}

// check does the work of usable on given facts. index is the value of UCX_IB_GID_INDEX.
func check(f family, device string, devices []hostinfo.RDMADevice, fault hostinfo.Fault, index string) error {
	if why := obstacle(device, devices, fault, index); why != "" {
		return unavailable(f, "%s", why)
	}
	return nil
}

// obstacle returns the reason why RDMA cannot be used and its fix, or "" if it can.
func obstacle(device string, devices []hostinfo.RDMADevice, fault hostinfo.Fault, index string) string {
	if len(devices) == 0 {
		return fmt.Sprintf("looked for RDMA devices in /sys/class/infiniband and found none: %s; mend: %s; without such a device --lane tcp and --lane shm use UCX over TCP and shared memory", fault.Reason, fault.Mend)
	}
	ports := portsOf(devices, device)
	if len(ports) == 0 {
		there := portNames(portsOf(devices, ""))
		if len(there) == 0 {
			return fmt.Sprintf("RDMA device %s shows no ports; mend: let this user read /sys/class/infiniband", devices[0].Name)
		}
		return fmt.Sprintf("no RDMA device %q here; there is %s; mend: choose one of them", device, strings.Join(there, ", "))
	}
	var faults, wrong []string
	for _, p := range ports {
		switch fault := p.fault(); {
		case fault != (hostinfo.Fault{}):
			faults = append(faults, fmt.Sprintf("%s: %s; mend: %s", p.name(), fault.Reason, fault.Mend))
		case p.lacksGID(index):
			wrong = append(wrong, p.wrongGID(index))
		default:
			return ""
		}
	}
	return strings.Join(append(wrong, faults...), "; ")
}

func unavailable(f family, format string, args ...any) error {
	return fmt.Errorf("%v: %w: %s", f, transport.ErrUnavailable, fmt.Sprintf(format, args...))
}

// port is a port of a device.
type port struct {
	device *hostinfo.RDMADevice
	*hostinfo.RDMAPort
}

// name returns UCX's name of the port.
func (p port) name() string { return fmt.Sprintf("%s:%d", p.device.Name, p.Number) }

// link returns the port's link layer, or "" if the kernel does not report it.
func (p port) link() transport.LinkLayer {
	switch {
	case p.device.NodeType == "RNIC":
		return transport.IWARP
	case p.LinkLayer == "Ethernet":
		return transport.RoCE
	case p.LinkLayer == "InfiniBand":
		return transport.InfiniBand
	}
	return ""
}

func (p port) fault() hostinfo.Fault {
	if p.device.Fault != (hostinfo.Fault{}) {
		return p.device.Fault
	}
	return p.Fault
}

// lacksGID reports whether the port has no GID with the user's GID index.
func (p port) lacksGID(index string) bool {
	n, err := strconv.Atoi(index)
	return err == nil && !slices.ContainsFunc(p.GIDs, func(g hostinfo.GID) bool { return g.Index == n })
}

func (p port) wrongGID(index string) string {
	var have []string
	for _, g := range p.GIDs {
		have = append(have, fmt.Sprintf("%d (%s, %s)", g.Index, g.Address, g.Type))
	}
	return fmt.Sprintf("UCX_IB_GID_INDEX=%s names no GID of %s, which has %s; mend: unset it or choose one of them", index, p.name(), strings.Join(have, ", "))
}

// portsOf returns the ports that match a name: a device, a device and port (mlx5_0:1),
// or a network interface on one. An empty name matches all.
func portsOf(devices []hostinfo.RDMADevice, name string) []port {
	var found []port
	for i := range devices {
		for j := range devices[i].Ports {
			p := port{&devices[i], &devices[i].Ports[j]}
			if name == "" || name == p.device.Name || name == p.name() || slices.Contains(p.Netdevs, name) {
				found = append(found, p)
			}
		}
	}
	return found
}

// nodeOf returns the NUMA node of the ports that match a name, or -1 if they are on
// several nodes or on none.
func nodeOf(f family, device string) int {
	if !f.rdma {
		return -1
	}
	devices, _ := rdmaDevices()
	return commonNode(portsOf(devices, device))
}

// processorsNear returns the CPUs of a device's NUMA node, or none if the node is
// unknown. A thread that posts to a device of another node crosses the link between the
// nodes with every doorbell and completion.
func processorsNear(f family, device string) []int {
	node := nodeOf(f, device)
	if node < 0 {
		return nil
	}
	return hostinfo.ProcessorsOf(node)
}

func commonNode(ports []port) int {
	node := -1
	for i, p := range ports {
		if i > 0 && p.device.NUMANode != node {
			return -1
		}
		node = p.device.NUMANode
	}
	return node
}

func portNames(ports []port) []string {
	var names []string
	for _, p := range ports {
		name := p.name()
		if len(p.Netdevs) > 0 {
			name += " (" + strings.Join(p.Netdevs, ", ") + ")"
		}
		names = append(names, name)
	}
	return names
}

// settings returns the UCX settings of a connection. The user's environment has
// precedence. The lanes that result are checked against the family later.
func settings(f family, cfg transport.Config) []ucx.Setting {
	device := cfg.Device
	var s []ucx.Setting
	if os.Getenv("UCX_TLS") == "" {
		tls := f.transports(cfg.Operation)
		if cfg.Memory == transport.CUDAMemory {
			tls += ",cuda_copy" // UCX needs it to recognize CUDA memory; it carries nothing between processes
		}
		s = append(s, ucx.Setting{Name: "TLS", Value: tls})
	}
	if f.oneRail && os.Getenv("UCX_MAX_RNDV_RAILS") == "" {
		s = append(s, ucx.Setting{Name: "MAX_RNDV_RAILS", Value: "1"})
	}
	if device == "" {
		return s
	}
	if f.rdma {
		devices, _ := rdmaDevices()
		var names []string
		for _, p := range portsOf(devices, device) {
			names = append(names, p.name())
		}
		device = strings.Join(names, ",")
	}
	return append(s, ucx.Setting{Name: "NET_DEVICES", Value: device})
}

// environment returns the user's UCX_ variables, which affect the choice of lanes.
func environment() map[string]string {
	set := make(map[string]string)
	for _, v := range os.Environ() {
		if name, value, _ := strings.Cut(v, "="); strings.HasPrefix(name, "UCX_") {
			set[name] = value
		}
	}
	return set
}

// explain wraps an error of the UCX set-up in ErrUnavailable, with advice.
func explain(err error, f family, device string) error {
	var e *ucx.Error
	if !errors.As(err, &e) {
		return err
	}
	from := ""
	if tls := os.Getenv("UCX_TLS"); tls != "" {
		from = " with UCX_TLS=" + tls + " from the environment"
	}
	if net := os.Getenv("UCX_NET_DEVICES"); net != "" && device == "" {
		from += " with UCX_NET_DEVICES=" + net + " from the environment"
	}
	if device != "" {
		from += " on device " + device
	}
	switch e.Status {
	case ucx.StatusNoDevice, ucx.StatusUnreachable:
		return unavailable(f, "UCX finds no such lane between the two sides%s (%v); kvbench devices lists what there is on each, of which UCX_TLS in the environment of either leaves some out", from, e)
	case ucx.StatusNoResource:
		return unavailable(f, "UCX%s: %v; look at the limit of open files (ulimit -n) and at the size of /dev/shm (docker: --shm-size)", from, e)
	case ucx.StatusNoMemory, ucx.StatusIO:
		return unavailable(f, "UCX cannot use the device%s (%v); look at the limit of open files (ulimit -n); %s", from, e, lockAdvice(hostinfo.LockLimit(), 0))
	}
	return unavailable(f, "UCX%s: %v", from, e)
}

// explainRegistration adds advice to an error of a memory registration.
func explainRegistration(err error, kind transport.MemoryKind, size int64) error {
	var e *ucx.Error
	if !errors.As(err, &e) {
		return err
	}
	if kind == transport.CUDAMemory {
		return fmt.Errorf("register %s of GPU memory: %w; a NIC reaches no more of it than the GPU's BAR1 has room for (nvidia-smi -q -d MEMORY); set UCX_LOG_LEVEL=info to see what UCX says of it", units.BinaryBytes(size), e)
	}
	return fmt.Errorf("register %s: %w; %s", units.BinaryBytes(size), e, lockAdvice(hostinfo.LockLimit(), size))
}

// lockAdvice returns advice on the limit of locked memory, the usual reason why size
// bytes cannot be registered. A size of 0 means any size.
func lockAdvice(limit *hostinfo.Memlock, size int64) string {
	if limit != nil && limit.Fault != (hostinfo.Fault{}) && (size == 0 || limit.Soft < size) {
		return fmt.Sprintf("%s; mend: %s", limit.Fault.Reason, limit.Fault.Mend)
	}
	return "set UCX_LOG_LEVEL=info to see what UCX says of it"
}
