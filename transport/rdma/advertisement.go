package rdma

import (
	"encoding/json"
	"fmt"

	"kvbench/transport"
)

// advertised is a region in an advertisement.
type advertised struct {
	ID      uint32 `json:"id"`
	Size    int64  `json:"size"`
	Address uint64 `json:"address"`
	Key     []byte `json:"key,omitempty"` // UCX's packed key; none for an empty region
}

// parseAdvertisement reads and checks a target's regions.
func parseAdvertisement(b transport.Advertisement) ([]advertised, error) {
	var regions []advertised
	if err := json.Unmarshal(b, &regions); err != nil {
		return nil, fmt.Errorf("read advertisement: %w: %w", transport.ErrProtocol, err)
	}
	seen := make(map[uint32]struct{}, len(regions))
	for _, r := range regions {
		if _, twice := seen[r.ID]; twice {
			return nil, fmt.Errorf("read advertisement: region %d twice: %w", r.ID, transport.ErrProtocol)
		}
		seen[r.ID] = struct{}{}
		if r.Size < 0 || r.ID == 0 || uint64(r.Size) > ^r.Address || (len(r.Key) == 0) != (r.Size == 0) {
			return nil, fmt.Errorf("read advertisement: region %d of %d bytes at %#x: %w", r.ID, r.Size, r.Address, transport.ErrProtocol)
		}
	}
	return regions, nil
}
