package staged

import (
	"context"
	"errors"
	"slices"
	"time"

	"kvbench/internal/cudadrv"
	"kvbench/transport"
)

const (
	// calibrationRounds is the number of timings of each size. Their median counts.
	calibrationRounds = 5
	// calibrationEnough is the longest time of one size before larger sizes are
	// skipped, so that a slow stage is timed within a fraction of a second.
	calibrationEnough = 20 * time.Millisecond
	// calibrationID is the first ID of inner transfers that belong to no place.
	calibrationID = 1 << 32
)

// calibrationSizes are the sizes of the timed batches in bytes. The smallest shows the
// startup time, the largest the bandwidth.
var calibrationSizes = []int64{4 << 10, 256 << 10, chunkBytes}

// calibrate times a stage that nothing else uses.
func calibrate(once func(bytes int64) (time.Duration, error)) (c cost, err error) {
	for i, bytes := range calibrationSizes {
		var took [calibrationRounds]time.Duration
		for j := range took {
			if took[j], err = once(bytes); err != nil {
				return c, err
			}
		}
		slices.Sort(took[:])
		t := took[calibrationRounds/2].Seconds()
		if i == 0 {
			c.alpha = t
		}
		// Startup and bytes together take t. The time without the startup belongs to
		// the bytes.
		c.bandwidth = float64(bytes) / max(t-c.alpha, t/2)
		if took[calibrationRounds/2] > calibrationEnough {
			break
		}
	}
	return c, nil
}

// calibrate times a copier's copies as the host sees them: from the launch until the
// host sees the end, awaited as for a chunk. The copier's finish must not run yet.
func (k *copier) calibrate(device *cudadrv.Buffer) (err error) {
	k.meter.alone, err = calibrate(func(bytes int64) (time.Duration, error) {
		start := time.Now()
		if err := k.launch(0, device.Pointer, []piece{{0, bytes}}, bytes); err != nil {
			return 0, err
		}
		end := k.marks[(<-k.added).mark].end
		if err := k.context.Do(func() error { return end.Await(k.spin) }); err != nil {
			return 0, k.explain(err)
		}
		return time.Since(start), nil
	})
	return err
}

// calibrateCopies times both directions with newly allocated device memory.
func calibrateCopies(c *cudadrv.Context, out, in *copier) error {
	device, err := c.Alloc(chunkBytes)
	if err != nil {
		return err
	}
	err = out.calibrate(device)
	if err == nil {
		err = in.calibrate(device)
	}
	if err != nil {
		// Copies may still be in flight after an error.
		if errWait := errors.Join(out.wait(), in.wait()); errWait != nil {
			return errors.Join(err, errWait)
		}
	}
	return errors.Join(err, device.Free())
}

// calibrateWire times inner transfers between the first places of the two rings, in a
// direction that the inner connection supports.
func calibrateWire(ctx context.Context, inner transport.Initiator, local transport.Region, remote transport.RemoteRegion, op transport.Op) (cost, error) {
	id := uint64(calibrationID)
	return calibrate(func(bytes int64) (time.Duration, error) {
		id++
		start := transport.Now()
		err := inner.Post(transport.Transfer{ID: id, Op: op, Local: local, Remote: remote, Descriptors: []transport.Descriptor{{Length: bytes}}})
		if err != nil {
			return 0, err
		}
		var done [1]transport.Completion
		for {
			n, err := inner.Poll(done[:])
			switch {
			case err != nil:
				return 0, err
			case n == 1:
				return done[0].Delivered - start, done[0].Err
			}
			if err := inner.Wait(ctx); err != nil {
				return 0, err
			}
		}
	})
}
