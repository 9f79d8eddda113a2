package hostinfo

import (
	"strings"
)

// GPU is an NVIDIA GPU as listed by its kernel driver, without CUDA.
type GPU struct {
	Minor    string // N of /dev/nvidiaN
	Model    string
	UUID     string
	PCI      PCI
	NUMANode int // UnknownNode if there is none
	Driver   string
}

// gpus lists the GPUs that the driver shows to this process. If there are none, the fault
// is the reason.
func (t tree) gpus() ([]GPU, Fault) {
	const dir = "proc/driver/nvidia/gpus"
	var list []GPU
	for _, address := range t.names(dir) {
		g := GPU{
			Minor: t.value("Device Minor", dir, address, "information"), Model: t.value("Model", dir, address, "information"),
			UUID: t.value("GPU UUID", dir, address, "information"), Driver: t.nvidiaDriver(),
		}
		g.PCI, g.NUMANode = t.pci("sys/bus/pci/devices", address)
		g.PCI.Address = address
		list = append(list, g)
	}
	if len(list) > 0 {
		return list, Fault{}
	}
	return nil, t.noGPU()
}

func (t tree) noGPU() Fault {
	switch idle := t.nvidiaOnBus(); {
	case !t.exists("proc/self"):
		return Fault{"GPUs cannot be listed, nor limits read: /proc is not there", "mount proc at /proc"}
	case t.exists("proc/driver/nvidia"):
		return Fault{"the NVIDIA driver is loaded and shows no GPU to this process", "in a container: docker --gpus all, or the cluster's GPU device plugin; on the host, look at nvidia-smi and dmesg"}
	case len(idle) > 0:
		return Fault{"no NVIDIA driver, though there is a GPU at " + strings.Join(idle, ", "), "install NVIDIA's driver and load it: modprobe nvidia"}
	}
	return Fault{"no NVIDIA driver: /proc/driver/nvidia is absent", "where there is an NVIDIA GPU, install its driver; in a container: docker --gpus all"}
}

// nvidiaDriver extracts the version from "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat ...".
func (t tree) nvidiaDriver() string {
	for _, word := range strings.Fields(t.value("NVRM version", "proc/driver/nvidia/version")) {
		if word[0] >= '0' && word[0] <= '9' && strings.Contains(word, ".") {
			return word
		}
	}
	return ""
}

// nvidiaOnBus lists the addresses of NVIDIA's display controllers on the PCI bus.
func (t tree) nvidiaOnBus() []string {
	const dir = "sys/bus/pci/devices"
	var found []string
	for _, address := range t.names(dir) {
		if t.word(dir, address, "vendor") == "0x10de" && strings.HasPrefix(t.word(dir, address, "class"), "0x03") {
			found = append(found, address)
		}
	}
	return found
}
