//go:build timing

package staged_test

import (
	"testing"

	"kvbench/transport"
)

// TestTransfersAllocateNothing holds Post and Poll to it, and what runs beside them. Under
// the race detector pools give less back.
func TestTransfersAllocateNothing(t *testing.T) {
	in, target, local, remote, _ := connect(t, 8<<20)
	descs := make([]transport.Descriptor, 64)
	for i := range descs {
		descs[i] = transport.Descriptor{Local: int64(i) << 17, Remote: int64(63-i) << 17, Length: 1 << 17}
	}
	var notices [1]transport.Notice
	var done [1]transport.Completion
	for _, op := range []transport.Op{transport.Write, transport.Read} {
		got := testing.AllocsPerRun(50, func() {
			if c := moveInto(t, in, transport.Transfer{Op: op, Local: local, Remote: remote, Descriptors: descs}, done[:]); c.Err != nil {
				t.Fatal(c.Err)
			}
			if _, err := target.Notifications(t.Context(), notices[:]); err != nil {
				t.Fatal(err)
			}
		})
		if got >= 1 {
			t.Errorf("%v allocations for each %v", got, op)
		}
	}
}
