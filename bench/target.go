package bench

import (
	"context"
	"fmt"
	"sync/atomic"

	"kvbench/transport"
)

// target is one worker's passive side.
type target struct {
	transport.Target
	worker int
	// ordered is set if all notices of a request come before the next request's, as with
	// acknowledged writes. Reads end on several streams, in any order.
	ordered bool
	// transfers is the number of transfers in a request of the current phase; 0 counts
	// none.
	transfers atomic.Int64
	arrived   atomic.Int64 // whole requests
}

// watch takes notices until the connection ends, and returns the reason. It calls whole
// when the last transfer of a request has been delivered.
func (t *target) watch(ctx context.Context, whole func(request uint64) error) error {
	var notices [64]transport.Notice
	var current uint64
	var have int64
	for {
		n, err := t.Notifications(ctx, notices[:])
		if err != nil {
			return fmt.Errorf("await layers: %w", err)
		}
		for _, notice := range notices[:n] {
			// A calibration notice can arrive after the next phase has begun.
			want := t.transfers.Load()
			request, _ := splitID(notice.ID)
			if want == 0 || request >= firstBatch {
				continue
			}
			if have == 0 || !t.ordered {
				current = request
			}
			if request != current {
				return fmt.Errorf("await layers: layer of request %d while %d of %d layers of request %d are missing: %w",
					request, want-have, want, current, transport.ErrProtocol)
			}
			if have++; have < want {
				continue
			}
			have = 0
			t.arrived.Add(1)
			if err := whole(request); err != nil {
				return err
			}
		}
	}
}
