package hostinfo

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// noDevices explains an empty list of RDMA devices from the error of reading its directory.
func noDevices(err error) Fault {
	switch {
	case err == nil:
		return Fault{"the kernel has RDMA support but no device here",
			"load the NIC's driver (mlx5_ib, bnxt_re, irdma, ...), or make a software device: rdma link add rxe0 type rxe netdev eth0; in a container with its own network, have the device moved into it (rdma dev set DEV netns NAME)"}
	case errors.Is(err, fs.ErrNotExist):
		return Fault{"the kernel has no RDMA support loaded: /sys/class/infiniband is absent",
			"load the NIC's driver (mlx5_ib, bnxt_re, irdma, ...), or for a software device: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0; see docs/rdma.md"}
	}
	return Fault{"RDMA devices cannot be listed: " + syscallReason(err), "let this user read /sys/class/infiniband"}
}

// verbsNode finds the file through which user space opens a device, and the reason if this
// process cannot open it.
func (t tree) verbsNode(device string) (path string, f Fault) {
	const class = "sys/class/infiniband_verbs"
	for _, name := range t.names(class) {
		if t.word(class, name, "ibdev") == device {
			node := "/dev/infiniband/" + name
			return node, nodeFault(node, tryOpen(t.path(node)))
		}
	}
	return "", Fault{"user space cannot reach it: there is no uverbs device", "modprobe ib_uverbs"}
}

// tryOpen opens a device file as UCX would, and closes it. access(2) is no substitute: it
// succeeds even if a container's device rules forbid opening the file.
func tryOpen(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// nodeFault explains an error of opening a device file.
func nodeFault(node string, err error) Fault {
	switch {
	case err == nil:
		return Fault{}
	case errors.Is(err, fs.ErrNotExist):
		return Fault{node + " is absent", "on the host, let udev make it (package rdma-core); in a container, pass it in: --device=/dev/infiniband, or the cluster's RDMA device plugin"}
	case errors.Is(err, syscall.EPERM):
		return Fault{node + " may not be opened: the device rules of this container forbid it", "start the container with --device=/dev/infiniband, or with the cluster's RDMA device plugin"}
	case errors.Is(err, fs.ErrPermission):
		return Fault{node + " may not be opened: permission denied", "give this user read and write access to it: its group (often rdma), or a udev rule with MODE=\"0666\""}
	}
	return Fault{node + " cannot be opened: " + syscallReason(err), "look for the driver's complaint in dmesg"}
}

// syscallReason is the innermost error, without the path.
func syscallReason(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}

// fault returns the reason why a port cannot carry data.
func (p RDMAPort) fault() Fault {
	switch {
	case p.State == "":
		return Fault{"its state cannot be read", "let this user read /sys/class/infiniband"}
	case p.State == "INIT" || p.State == "ARMED":
		return Fault{"the port is up and waits for a subnet manager (" + p.State + ")", "start one on the fabric: opensm on a host, or the switch's own"}
	case p.State != "ACTIVE":
		return p.down()
	case len(p.GIDs) == 0:
		return Fault{"its GID table is empty or cannot be read", p.address()}
	}
	return Fault{}
}

func (p RDMAPort) down() Fault {
	reason := fmt.Sprintf("the port is %s, its link %s", p.State, cmp.Or(p.PhysicalState, "in an unknown state"))
	switch {
	case p.LinkLayer == "InfiniBand":
		return Fault{reason, "look at the cable and at the switch's port; if it is Disabled: ibportstate, or the driver's settings"}
	case p.PhysicalState == "Disabled":
		return Fault{reason, fmt.Sprintf("ip link set %s up", p.interfaceName())}
	}
	return Fault{reason, fmt.Sprintf("look at the cable and at the switch's port of %s", p.interfaceName())}
}

func (p RDMAPort) address() string {
	if p.LinkLayer == "InfiniBand" {
		return "look for the driver's complaint in dmesg"
	}
	return fmt.Sprintf("give %s an address: ip addr add ADDRESS/LENGTH dev %[1]s", p.interfaceName())
}

func (p RDMAPort) interfaceName() string {
	return cmp.Or(strings.Join(p.Netdevs, ","), "the interface")
}
