package nvml_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kvbench/internal/cudadrv"
	"kvbench/internal/cudadrv/testdouble"
	"kvbench/internal/nvml"
	"kvbench/internal/testenv"
)

// TestLink has every kind of link, asked for from both of its ends.
func TestLink(t *testing.T) {
	const links, p2p, topology, pcie = "NVML_DOUBLE_LINKS=", "NVML_DOUBLE_P2P=", "NVML_DOUBLE_TOPOLOGY=", "NVML_DOUBLE_PCIE="
	for _, c := range []struct {
		name, want string
		env        []string
	}{
		{"NVLink", "NVLink 3 x4", []string{links + "0-1:4", "NVML_DOUBLE_NVLINK=5", "NVML_DOUBLE_ARCHITECTURE=7"}},
		{"NVLink, behind links elsewhere", "NVLink 2 x2", []string{links + "0-2:1,1-3:1,0-1:2", "NVML_DOUBLE_NVLINK=2", "NVML_DOUBLE_ARCHITECTURE=5", "CUDA_DOUBLE_DEVICES=4"}},
		{"NVSwitch", "NVLink 4 x18 through NVSwitch", []string{links + "0-s:18,1-s:18"}},
		{"NVSwitch, a link down", "NVLink 4 x17 through NVSwitch", []string{links + "0-s:18,1-s:17"}},
		{"generation left open", "NVLink of unknown generation x18 through NVSwitch", []string{links + "0-s:18,1-s:18", "NVML_DOUBLE_ARCHITECTURE=13"}},
		{"architecture not told", "NVLink of unknown generation x18 through NVSwitch", []string{links + "0-s:18,1-s:18", "NVML_DOUBLE_FAIL=nvmlDeviceGetArchitecture:3"}},
		{"hidden from CUDA", "NVLink 4 x4", []string{links + "0-1:4", "CUDA_VISIBLE_DEVICES=0"}},
		{"NVLinks elsewhere", "PCIe 4 x16 between NUMA nodes", []string{links + "0-2:4,1-3:4", p2p + "5", "CUDA_DOUBLE_DEVICES=4"}},
		{"NVSwitch, partitioned", "PCIe 4 x16 through several PCIe switches", []string{links + "0-s:18,1-s:18", p2p + "5", topology + "20"}},
		{"NVLinks down", "PCIe 4 x16 between NUMA nodes", []string{links, p2p + "5"}},
		{"one board", "PCIe 4 x16 within one board", []string{topology + "0"}},
		{"one switch, idle", "PCIe 5 x16 through one PCIe switch", []string{topology + "10", pcie + "1/5x16/16"}},
		{"switches", "PCIe 4 x16 through several PCIe switches", []string{topology + "20"}},
		{"host bridge", "PCIe 4 x16 through one host bridge", []string{topology + "30"}},
		{"host bridges", "PCIe 4 x16 between host bridges of one NUMA node", []string{topology + "40"}},
		{"NUMA nodes", "PCIe 4 x16 between NUMA nodes", []string{topology + "50"}},
		{"an older end", "PCIe 3 x16 between NUMA nodes", []string{pcie + "1/5x16/16,3/3x16/16"}},
		{"half the lanes", "PCIe 5 x8 between NUMA nodes", []string{pcie + "5/5x16/16,5/5x8/16"}},
		{"as slow either way", "PCIe 4 x16 between NUMA nodes", []string{pcie + "5/5x8/16,4/4x16/16"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, pair := range []string{"0-1", "1-0"} {
				if got, ok := answer(t, pair, c.env...); !ok || got != c.want {
					t.Errorf("%s: got %q, want %q", pair, got, c.want)
				}
			}
		})
	}
}

// TestLinkUnknown: what NVML does not tell is an error that says why.
func TestLinkUnknown(t *testing.T) {
	testdouble.Only(t)
	broken, old := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, "libnvidia-ml.so.1"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := testdouble.Build(old, true); err != nil {
		t.Fatal(err)
	}
	const links, fail, path = "NVML_DOUBLE_LINKS=", "NVML_DOUBLE_FAIL=", "LD_LIBRARY_PATH="
	for _, c := range []struct {
		name, pair, want string
		env              []string
	}{
		{"library does not load", "0-1", "no NVML: ", []string{path + broken}},
		{"driver not loaded", "0-1", "nvmlInit_v2: Driver Not Loaded (9)", []string{fail + "nvmlInit_v2:9"}},
		{"no such GPU", "0-7", "find " + uuid(7) + ": nvmlDeviceGetHandleByUUID: Not Found (6)", nil},
		{"one GPU", "0-0", "no link joins a GPU to itself", []string{links + "0-s:18,1-s:18"}},
		{"old driver, switches", "0-1", "over NVLink, but NVIDIA driver too old: its NVML lacks nvmlDeviceGetNvLinkRemoteDeviceType", []string{path + old, links + "0-s:12,1-s:12"}},
		{"switch not named", "0-1", "over NVLink, but NVML does not say what NVLink 17 leads to (type 255)", []string{links + "0-u:18,1-u:18"}},
		{"NVLinks elsewhere", "0-1", "over NVLink, but NVML does not say by which links, of 4 that are up", []string{links + "0-2:4,1-3:4", "CUDA_DOUBLE_DEVICES=4"}},
		{"every NVLink down", "0-1", "over NVLink, but NVML does not say by which links, of 0 that are up", []string{links}},
		{"reach unknown", "0-1", "NVML does not say whether NVLink joins the two (status 6)", []string{links + "0-1:4", "NVML_DOUBLE_P2P=6"}},
		{"topology unknown", "0-1", "NVML does not say what lies between the two (topology level 60)", []string{"NVML_DOUBLE_TOPOLOGY=60"}},
		{"state fails", "0-1", "nvmlDeviceGetNvLinkState: GPU is lost (15)", []string{links + "0-1:4", fail + "nvmlDeviceGetNvLinkState:15"}},
		{"version fails", "0-1", "nvmlDeviceGetNvLinkVersion: Unknown Error (999)", []string{links + "0-1:4", fail + "nvmlDeviceGetNvLinkVersion:999"}},
		{"remote fails", "0-1", "over NVLink, but nvmlDeviceGetNvLinkRemotePciInfo_v2: Unknown Error (999)", []string{links + "0-1:4", fail + "nvmlDeviceGetNvLinkRemotePciInfo_v2:999"}},
		{"reach fails", "0-1", "nvmlDeviceGetP2PStatus: Invalid Argument (2)", []string{links + "0-1:4", fail + "nvmlDeviceGetP2PStatus:2"}},
		{"address fails", "0-1", "nvmlDeviceGetPciInfo_v3: GPU is lost (15)", []string{links + "0-1:4", fail + "nvmlDeviceGetPciInfo_v3:15"}},
		{"topology fails", "0-1", "nvmlDeviceGetTopologyCommonAncestor: Not Supported (3)", []string{fail + "nvmlDeviceGetTopologyCommonAncestor:3"}},
		{"generation fails", "0-1", "nvmlDeviceGetCurrPcieLinkGeneration: Not Supported (3)", []string{fail + "nvmlDeviceGetCurrPcieLinkGeneration:3"}},
		{"highest generation fails", "0-1", "nvmlDeviceGetMaxPcieLinkGeneration: Not Supported (3)", []string{fail + "nvmlDeviceGetMaxPcieLinkGeneration:3"}},
		{"width fails", "0-1", "nvmlDeviceGetCurrPcieLinkWidth: Not Supported (3)", []string{fail + "nvmlDeviceGetCurrPcieLinkWidth:3"}},
		{"most lanes fail", "0-1", "nvmlDeviceGetMaxPcieLinkWidth: Not Supported (3)", []string{fail + "nvmlDeviceGetMaxPcieLinkWidth:3"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, ok := answer(t, c.pair, c.env...); ok || !strings.HasPrefix(got, c.want) {
				t.Errorf("got %q, want an error %q", got, c.want)
			}
		})
	}
	// An old driver says where a GPU sits, and so what a link to one joins.
	if got, ok := answer(t, "0-1", path+old, links+"0-1:6", "NVML_DOUBLE_NVLINK=2"); !ok || got != "NVLink 2 x6" {
		t.Errorf("old driver, GPU to GPU: got %q", got)
	}
}

// TestPCIe has all that a record holds of a way over PCI Express.
func TestPCIe(t *testing.T) {
	testdouble.Only(t)
	t.Setenv("NVML_DOUBLE_PCIE", "1/5x16/16,3/4x8/16")
	t.Setenv("NVML_DOUBLE_TOPOLOGY", "30")
	library, err := nvml.Open()
	if err != nil {
		t.Fatal(err)
	}
	got, err := library.Link(uuid(0), uuid(1))
	if err != nil {
		t.Fatal(err)
	}
	if got.NVLink != nil || got.Topology.Name != "hostbridge" || got.Own != (nvml.PCIe{1, 5, 16, 16}) || got.Peer != (nvml.PCIe{3, 4, 8, 16}) {
		t.Errorf("got %+v", got)
	}
}

// TestThisMachine prints what joins the GPUs that CUDA shows, for whoever runs it on
// a machine with several. Every pair looks alike from both ends.
func TestThisMachine(t *testing.T) {
	testdouble.Need(t)
	driver, err := cudadrv.Open()
	if err != nil {
		testenv.Skip(t, "cuda", err.Error())
	}
	library, err := nvml.Open()
	if err != nil {
		testenv.Skip(t, "nvml", err.Error())
	}
	var uuids []string
	for i := range driver.Count() {
		d, err := driver.Device(i)
		if err != nil {
			t.Fatal(err)
		}
		uuids = append(uuids, d.UUID.String())
	}
	for i, own := range uuids {
		for j, peer := range uuids[:i] {
			there, errThere := library.Link(peer, own)
			back, errBack := library.Link(own, peer)
			t.Logf("cuda:%d and cuda:%d: %v", j, i, orError(there, errThere))
			if orError(there, errThere) != orError(back, errBack) {
				t.Errorf("from cuda:%d it is %v", i, orError(back, errBack))
			}
		}
	}
}

func orError(l nvml.Link, err error) string {
	if err != nil {
		return fmt.Sprint("unknown: ", err)
	}
	return l.String()
}
