package main

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"

	"kvbench/internal/cudadrv"
	"kvbench/internal/hostinfo"
	"kvbench/internal/nvml"
	"kvbench/report"
	"kvbench/transport"
)

func (a *app) devicesCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "Show what this host can move data with, and what is in the way",
		Long: `devices lists the network interfaces, RDMA devices, GPUs, NUMA nodes and memory
limits of this host, and the transports of this build. What cannot be used is
followed by the reason and by how to mend it. It changes nothing, and its exit
status is 0 whatever is missing.`,
		Example: `  kvbench devices
  kvbench devices --format json | jq '.rows[] | select(.kind == "rdma" and .usable == false)'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			return a.devices(cmd.Context(), format)
		},
	}
	registerFormat(cmd, &format)
	return cmd
}

func (a *app) devices(ctx context.Context, format string) error {
	view := report.DevicesView{Inventory: hostinfo.Inspect(), CUDA: cudaDevices()}
	for _, t := range a.transports {
		view.Transports = append(view.Transports, probe(ctx, t))
	}
	if format == string(report.Text) {
		return view.WriteText(a.out)
	}
	return a.print(view.Table(), format)
}

// cudaDevices returns the CUDA driver's devices.
func cudaDevices() report.CUDAState {
	d, err := cudadrv.Open()
	if err != nil {
		return report.CUDAState{Err: err}
	}
	s := report.CUDAState{Version: d.Version()}
	for i := range d.Count() {
		dev, err := d.Device(i)
		if err != nil {
			return report.CUDAState{Err: err}
		}
		s.Devices = append(s.Devices, report.CUDADevice{
			Ordinal: i, Name: dev.Name, MemoryBytes: dev.Memory, PCIAddress: dev.PCIBusID, UUID: dev.UUID.String(),
		})
	}
	s.Links = gpuLinks(s.Devices)
	return s
}

// gpuLinks returns the link between each pair of devices, from NVML.
func gpuLinks(devices []report.CUDADevice) []report.GPULink {
	var links []report.GPULink
	for i, d := range devices {
		for _, peer := range devices[i+1:] {
			l := report.GPULink{Ordinal: d.Ordinal, Peer: peer.Ordinal}
			joined, err := nvml.Between(d.UUID, peer.UUID)
			if l.Err = err; err == nil {
				l.Link = joined.String()
			}
			links = append(links, l)
		}
	}
	return links
}

// probe returns whether a transport can be used here, and its lanes.
func probe(ctx context.Context, t transport.Transport) report.TransportState {
	s := report.TransportState{Name: t.Name(), Capabilities: t.Capabilities(), Err: t.Probe(ctx)}
	if l, ok := t.(transport.LaneLister); ok {
		lanes, err := l.Lanes(ctx)
		s.Lanes, s.Err = lanes, cmp.Or(s.Err, err)
	}
	return s
}
