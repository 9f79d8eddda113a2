package cuda

import (
	"encoding/json"
	"fmt"

	"kvbench/internal/cudadrv"
	"kvbench/transport"
)

// advertised is the target's description of a region.
type advertised struct {
	ID         uint32  `json:"id"`
	Size       int64   `json:"size_bytes"`
	Device     []byte  `json:"device_uuid"`
	MIG        bool    `json:"device_mig,omitempty"` // the device is a MIG instance
	Sharing    sharing `json:"sharing"`
	Handle     []byte  `json:"handle"`           // CUDA IPC handle of the region's allocation; with descriptors, the allocation's name
	Offset     int64   `json:"offset_bytes"`     // start of the region in the allocation
	Allocation int64   `json:"allocation_bytes"` // the allocation's size
}

// owner returns the device of the region. The advertisement must have been checked.
func (a advertised) owner() cudadrv.UUID { return cudadrv.UUID{Bytes: [16]byte(a.Device), MIG: a.MIG} }

// kindOf returns how an exported allocation is shared.
func kindOf(x cudadrv.Exported) sharing {
	if x.Shareable {
		return byDescriptor
	}
	return byHandle
}

func (a advertised) check() error {
	if len(a.Device) != len(cudadrv.UUID{}.Bytes) || len(a.Handle) != cudadrv.HandleSize {
		return fmt.Errorf("region %d: UUID of %d bytes, handle of %d: %w", a.ID, len(a.Device), len(a.Handle), transport.ErrProtocol)
	}
	if a.Sharing != byHandle && a.Sharing != byDescriptor {
		return fmt.Errorf("region %d: memory shared by %.20q: %w", a.ID, a.Sharing, transport.ErrProtocol)
	}
	if a.Size < 1 || a.Offset < 0 || a.Offset > a.Allocation || a.Size > a.Allocation-a.Offset {
		return fmt.Errorf("region %d: %d bytes at offset %d of an allocation of %d: %w", a.ID, a.Size, a.Offset, a.Allocation, transport.ErrProtocol)
	}
	return nil
}

// parseAdvertisement reads and checks a target's advertisement.
func parseAdvertisement(ad transport.Advertisement) ([]advertised, error) {
	var all []advertised
	if err := json.Unmarshal(ad, &all); err != nil {
		return nil, fmt.Errorf("read advertisement: %w: %w", transport.ErrProtocol, err)
	}
	for _, a := range all {
		if err := a.check(); err != nil {
			return nil, fmt.Errorf("read advertisement: %w", err)
		}
	}
	return all, nil
}
