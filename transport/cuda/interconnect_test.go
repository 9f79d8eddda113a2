package cuda_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"kvbench/internal/cudadrv/testdouble"
	"kvbench/transport"
	"kvbench/transport/transporttest/remote"
)

// paths connects two processes, with memory of a device each, and returns what the
// initiator and the target say of what joins them.
func paths(t *testing.T, initiator, target int, env ...string) [2]transport.Path {
	t.Helper()
	return pathsOf(t, start(t, initiator, env...), start(t, target, env...))
}

// ends connects two processes, each with memory of its own registered.
func ends(t *testing.T, here, there *remote.Transport) (in transport.Initiator, to transport.Target, local, region transport.Region) {
	t.Helper()
	l := must(there.Listen(t.Context(), transport.Config{}))(t)
	in = must(here.Dial(t.Context(), l.Address(), transport.Config{}))(t)
	to = must(l.AcceptTarget(t.Context()))(t)
	region = must(to.Register(must(there.Alloc(4096))(t).Memory()))(t)
	local = must(in.Register(must(here.Alloc(4096))(t).Memory()))(t)
	return in, to, local, region
}

// pathsOf is paths of two processes that were started.
func pathsOf(t *testing.T, here, there *remote.Transport) [2]transport.Path {
	t.Helper()
	in, to, local, region := ends(t, here, there)
	remote := must(in.Import(must(to.Advertise(region))(t)))(t)
	if err := in.Post(transport.Transfer{Op: transport.Write, Local: local, Remote: remote[0], Descriptors: []transport.Descriptor{{Length: 4096}}}); err != nil {
		t.Fatal(err)
	}
	if c := wait(t, in); c.Err != nil { // delivered: the target knows its peer
		t.Fatal(c.Err)
	}
	return [2]transport.Path{in.Path(), to.Path()}
}

// TestLinks has both sides name what joins their devices, alike.
func TestLinks(t *testing.T) {
	testdouble.Only(t)
	broken, old := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, "libnvidia-ml.so.1"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := testdouble.Build(old, true); err != nil {
		t.Fatal(err)
	}
	// The double of libcuda stays that of these tests: the old library is NVML's alone.
	if err := os.Remove(filepath.Join(old, "libcuda.so.1")); err != nil {
		t.Fatal(err)
	}
	instead := func(dir string) string { return "LD_LIBRARY_PATH=" + dir + ":" + os.Getenv("LD_LIBRARY_PATH") }
	switched := "NVML_DOUBLE_LINKS=0-s:18,1-s:18"
	pcie := func(topology string) map[string]any {
		end := map[string]any{"generation": 1.0, "max_generation": 5.0, "width": 16.0, "max_width": 16.0}
		return map[string]any{"link": "pcie", "pcie_topology": topology, "pcie": end, "peer_pcie": end}
	}
	unknown := map[string]any{"link": "unknown"}
	for _, c := range []struct {
		name, lane string
		env        []string
		details    map[string]any
	}{
		{"NVLink", "NVLink 3 x4", []string{"NVML_DOUBLE_LINKS=0-1:4", "NVML_DOUBLE_NVLINK=5", "NVML_DOUBLE_ARCHITECTURE=7"},
			map[string]any{"link": "nvlink", "nvlink_generation": 3.0, "nvlinks": 4.0, "nvswitch": false}},
		{"NVSwitch", "NVLink 4 x18 through NVSwitch", []string{switched},
			map[string]any{"link": "nvlink", "nvlink_generation": 4.0, "nvlinks": 18.0, "nvswitch": true}},
		{"generation left open", "NVLink of unknown generation x18 through NVSwitch", []string{switched, "NVML_DOUBLE_ARCHITECTURE=13"},
			map[string]any{"link": "nvlink", "nvlinks": 18.0, "nvswitch": true}},
		{"one board", "PCIe 5 x16 within one board", []string{"NVML_DOUBLE_TOPOLOGY=0"}, pcie("internal")},
		{"one switch", "PCIe 5 x16 through one PCIe switch", []string{"NVML_DOUBLE_TOPOLOGY=10"}, pcie("single")},
		{"switches", "PCIe 5 x16 through several PCIe switches", []string{"NVML_DOUBLE_TOPOLOGY=20"}, pcie("multiple")},
		{"host bridge", "PCIe 5 x16 through one host bridge", []string{"NVML_DOUBLE_TOPOLOGY=30"}, pcie("hostbridge")},
		{"host bridges", "PCIe 5 x16 between host bridges of one NUMA node", []string{"NVML_DOUBLE_TOPOLOGY=40"}, pcie("node")},
		{"NUMA nodes", "PCIe 5 x16 between NUMA nodes", []string{"NVML_DOUBLE_TOPOLOGY=50"}, pcie("system")},
		{"no library", "peer, link unknown: no NVML: ", []string{instead(broken)}, unknown},
		{"old driver", "peer, link unknown: over NVLink, but NVIDIA driver too old: its NVML lacks nvmlDeviceGetNvLinkRemoteDeviceType", []string{instead(old), switched}, unknown},
		{"a call fails", "peer, link unknown: nvmlDeviceGetTopologyCommonAncestor: Not Supported (3)", []string{"NVML_DOUBLE_FAIL=nvmlDeviceGetTopologyCommonAncestor:3"}, unknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i, p := range paths(t, 0, 1, append(c.env, "NVML_DOUBLE_PCIE=1/5x16/16")...) {
				side := []string{"initiator", "target"}[i]
				if want := "cuda/" + c.lane; p.Lane != want && !(strings.HasSuffix(want, ": ") && strings.HasPrefix(p.Lane, want)) {
					t.Errorf("%s: lane %q, want %q", side, p.Lane, want)
				}
				for _, key := range []string{"link", "nvlink_generation", "nvlinks", "nvswitch", "pcie_topology", "pcie", "peer_pcie"} {
					if got, want := p.Details[key], c.details[key]; !reflect.DeepEqual(got, want) {
						t.Errorf("%s: %s is %v, want %v", side, key, got, want)
					}
				}
			}
		})
	}
}

// TestSameDeviceIsNoNVLink: copies within a device go through its own memory, however
// many NVLinks it has, and whether NVML is there or not.
func TestSameDeviceIsNoNVLink(t *testing.T) {
	testdouble.Only(t)
	for _, env := range []string{
		"NVML_DOUBLE_LINKS=0-s:18,1-s:18", "NVML_DOUBLE_LINKS=0-1:12", "NVML_DOUBLE_LINKS=0-0:4", "NVML_DOUBLE_FAIL=nvmlInit_v2:9",
	} {
		for i, p := range paths(t, 0, 0, env) {
			if p.Lane != "cuda/same device (HBM copy)" || p.Details["link"] != "same device" || strings.Contains(fmt.Sprint(p), "nvlink") {
				t.Errorf("%s, side %d: lane %q, %v", env, i, p.Lane, p.Details)
			}
		}
	}
}

// TestMIGInstances: two instances of one GPU are not the same device, and no link of the
// GPU's joins them.
func TestMIGInstances(t *testing.T) {
	testdouble.Only(t)
	const first, second = "MIG-6b766265-6e63-6820-646f-75626c650100", "MIG-6b766265-6e63-6820-646f-75626c650200"
	links := "NVML_DOUBLE_LINKS=0-s:18,1-s:18"
	sides := pathsOf(t, start(t, 0, links, "CUDA_DOUBLE_MIG=1"), start(t, 0, links, "CUDA_DOUBLE_MIG=2"))
	for i, want := range [][2]string{{first, second}, {second, first}} {
		p := sides[i]
		if p.Lane != "cuda/peer, link unknown: NVML does not say what joins a MIG instance to others" || p.Details["device_uuid"] != want[0] || p.Details["peer_device_uuid"] != want[1] || p.Details["link"] != "unknown" {
			t.Errorf("side %d: lane %q, %v", i, p.Lane, p.Details)
		}
	}
	for i, p := range pathsOf(t, start(t, 0, "CUDA_DOUBLE_MIG=1"), start(t, 0, "CUDA_DOUBLE_MIG=1")) {
		if p.Lane != "cuda/same device (HBM copy)" {
			t.Errorf("one instance, side %d: lane %q", i, p.Lane)
		}
	}
}

// TestMIGInstanceOutOfReach has the driver not open memory of another instance.
func TestMIGInstanceOutOfReach(t *testing.T) {
	testdouble.Only(t)
	here := start(t, 0, "CUDA_DOUBLE_MIG=1", "CUDA_DOUBLE_FAIL=cuIpcOpenMemHandle_v2:0:101")
	in, to, _, region := ends(t, here, start(t, 0, "CUDA_DOUBLE_MIG=2"))
	_, err := in.Import(must(to.Advertise(region))(t))
	contains(t, err, "the peer's device MIG-6b766265-6e63-6820-646f-75626c650200 is a MIG instance that this process does not see",
		"or use the transport tcp", "CUDA_ERROR_INVALID_DEVICE (101)")
}
