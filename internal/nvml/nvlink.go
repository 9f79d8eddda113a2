package nvml

import (
	"cmp"
	"errors"
	"fmt"
	"unsafe"
)

// maxNVLinks is the most links in nvml.h (NVML_NVLINK_MAX_LINKS; 18 in older headers). GPUs
// have fewer. For the others calls return InvalidArgument or NotSupported.
const maxNVLinks = 36

// enabled is the state of a link that is up (NVML_FEATURE_ENABLED).
const enabled = 1

// Values of nvmlIntNvLinkDeviceType_t: the device at the other end of a link.
const (
	remoteGPU    = 0
	remoteSwitch = 2
)

// nvlinks counts a GPU's links that are up, by the device at their other end.
type nvlinks struct {
	some     bool // the GPU has NVLinks, up or not
	toGPU    map[pciAddress]int
	toSwitch int
	version  uint32 // of the first link, in the form of nvmlDeviceGetNvLinkVersion
	up       int
	unnamed  error // the reason if the other end of a link is unknown, or nil
}

// nvlinks reads each of a GPU's links.
func (d device) nvlinks() (nvlinks, error) {
	found := nvlinks{toGPU: make(map[pciAddress]int)}
	for link := range uintptr(maxNVLinks) {
		state, err := d.numberOf(symGetNVLinkState, link)
		switch {
		case errors.Is(err, InvalidArgument), errors.Is(err, NotSupported):
			continue // no such link
		case err != nil:
			return found, err
		}
		found.some = true
		if state != enabled {
			continue
		}
		if found.up == 0 {
			if found.version, err = d.numberOf(symGetNVLinkVersion, link); err != nil {
				return found, err
			}
		}
		found.up++
		if err := d.follow(link, &found); err != nil {
			found.unnamed = err
		}
	}
	return found, nil
}

// follow adds a link's other end. Older drivers (450, for example) do not distinguish
// switches from GPUs, but do report the address of a GPU.
func (d device) follow(link uintptr, found *nvlinks) error {
	kind, err := d.numberOf(symGetNVLinkRemoteDeviceType, link)
	if err == nil && kind == remoteSwitch {
		found.toSwitch++
		return nil
	}
	var at pciInfo
	if err := d.library.call(symGetNVLinkRemotePCIInfo, d.handle, link, uintptr(unsafe.Pointer(&at))); err != nil {
		return err
	}
	found.toGPU[at.address()]++ // or another device there, which is no peer of any GPU
	if err == nil && kind != remoteGPU {
		err = fmt.Errorf("%w what NVLink %d leads to (type %d)", ErrUnclear, link, kind)
	}
	return err
}

// reaches reports whether copies between two GPUs may go over NVLink.
func (d device) reaches(peer device) (bool, error) {
	const (
		nvlink  = 2 // NVML_P2P_CAPS_INDEX_NVLINK
		ok      = 0 // NVML_P2P_STATUS_OK
		unknown = 6 // NVML_P2P_STATUS_UNKNOWN
	)
	var status uint32
	if err := d.library.call(symGetP2PStatus, d.handle, peer.handle, nvlink, uintptr(unsafe.Pointer(&status))); err != nil {
		return false, err
	}
	if status >= unknown {
		return false, fmt.Errorf("%w whether NVLink joins the two (status %d)", ErrUnclear, status)
	}
	return status == ok, nil
}

// nvlink returns the NVLink between two GPUs, or nil if there is none. It first reads the
// GPUs' links, and then whether NVML lets the two reach each other over them: switches may
// be partitioned, and links that are down may be asleep.
func (d device) nvlink(peer device) (*NVLink, error) {
	own, err := d.nvlinks()
	if err != nil || !own.some {
		return nil, err
	}
	if ok, err := d.reaches(peer); err != nil || !ok {
		return nil, err
	}
	there, err := peer.address()
	if err != nil {
		return nil, err
	}
	if n := own.toGPU[there]; n > 0 {
		return &NVLink{Generation: d.generation(own.version), Links: n}, nil
	}
	its, err := peer.nvlinks()
	if err != nil {
		return nil, err
	}
	if n := min(own.toSwitch, its.toSwitch); n > 0 {
		return &NVLink{Generation: min(d.generation(own.version), peer.generation(its.version)), Links: n, Switch: true}, nil
	}
	if err := cmp.Or(own.unnamed, its.unnamed); err != nil {
		return nil, fmt.Errorf("over NVLink, but %w", err)
	}
	return nil, fmt.Errorf("over NVLink, but %w by which links, of %d that are up", ErrUnclear, own.up)
}
