//go:build timing

package cudadrv_test

import (
	"errors"
	"testing"
	"time"

	"kvbench/internal/cudadrv"
)

// TestTimedCallsAllocateNothing holds the calls of a transfer's path to it. Under the race
// detector pools forget what they hold, and calls of C take from one.
func TestTimedCallsAllocateNothing(t *testing.T) {
	c := context(t)
	from, to := alloc(t, c, noise(4096, 1)), alloc(t, c, noise(4096, 2))
	err := c.Do(func() error {
		s, err := c.NewStream()
		if err != nil {
			return err
		}
		e, err := c.NewEvent()
		if err != nil {
			return err
		}
		var copies cudadrv.Copies
		got := testing.AllocsPerRun(20, func() {
			copies.Reset()
			for i := range cudadrv.DevicePointer(8) {
				copies.Add(to.Pointer+512*i, from.Pointer+512*i, 512)
			}
			if err = errors.Join(err, s.Copy(&copies), e.Record(s), e.Await(time.Second)); err != nil {
				return
			}
			_, err = e.Done()
		})
		if got != 0 {
			t.Errorf("%v allocations for a batch, an event and a wait", got)
		}
		return errors.Join(err, e.Close(), s.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
}
