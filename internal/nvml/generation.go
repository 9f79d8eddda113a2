package nvml

// generations are the NVLink generations that a link's version may mean. nvml.h numbers
// 1.0, 2.0, 2.2, 3.0, 3.1, 4.0, 5.0, 6.0 from 1 on (nvmlNvlinkVersion_t). Drivers return
// the numbers of their internal interface, which skip 3
// (NV2080_CTRL_NVLINK_CAPS_NVLINK_VERSION in NVIDIA's open kernel modules): an A100 reports
// 5 (hwloc issue 658) and an H100 reports 7.
var generations = map[uint32][]int{
	1: {1},
	2: {2},
	3: {2},
	4: {3, 2},
	5: {3},
	6: {4, 3},
	7: {5, 4},
	8: {6, 5},
}

// architectures gives the NVLink generation of each architecture's GPUs (NVML_DEVICE_ARCH):
// P100 1, V100 and Turing 2, A100 3, H100 4, B200 5.
var architectures = map[uint32]int{4: 1, 5: 2, 6: 2, 7: 3, 9: 4, 10: 5}

// generation returns the generation of NVLink for a version, or 0 if it stays ambiguous. If
// a version may mean several, the GPU's architecture decides.
func generation(version, architecture uint32) int {
	may := generations[version]
	if len(may) == 1 {
		return may[0]
	}
	for _, g := range may {
		if g == architectures[architecture] {
			return g
		}
	}
	return 0
}

// generation is the generation of a GPU's links. If the driver does not report the
// architecture, an ambiguous version stays 0.
func (d device) generation(version uint32) int {
	architecture, err := d.number(symGetArchitecture)
	if err != nil {
		architecture = 0
	}
	return generation(version, architecture)
}
