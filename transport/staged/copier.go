package staged

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"kvbench/internal/cudadrv"
	"kvbench/internal/gpumem"
	"kvbench/transport"
)

// direction is the direction of a copier's copies.
type direction bool

const (
	toHost   direction = false
	fromHost direction = true
)

// copier copies chunks between device memory and the ring in one direction, in the
// order of the launches, on a separate CUDA stream.
type copier struct {
	context *cudadrv.Context
	stream  *cudadrv.Stream
	to      direction
	ring    *cudadrv.Pinned
	spin    time.Duration // how long to poll before sleeping
	ended   func(place int) error

	mu     sync.Mutex // serializes launches
	bound  *cudadrv.Binder
	copies cudadrv.Copies
	marks  [ringPlaces + 1]mark // one more than can be in flight
	next   int
	add    func() error  // addBound, bound once so that a launch allocates nothing
	added  chan launched // in the stream's order
	meter  meter
}

// mark is the pair of events around a chunk's copies.
type mark struct{ begin, end *cudadrv.Event }

type launched struct {
	place, mark int
	bytes       int64
}

// meter sums the chunks, bytes and times of a stage.
type meter struct {
	chunks, bytes, nanoseconds atomic.Int64
	alone                      cost // set when the connection is made
}

// cost is the cost of a stage that runs alone: startup in seconds, and bytes per
// second.
type cost struct{ alpha, bandwidth float64 }

func (m *meter) count(bytes int64, took time.Duration) {
	m.chunks.Add(1)
	m.bytes.Add(bytes)
	m.nanoseconds.Add(int64(took))
}

func (m *meter) read() transport.StageTime {
	s := transport.StageTime{
		Chunks: m.chunks.Load(), Bytes: m.bytes.Load(), Seconds: float64(m.nanoseconds.Load()) / 1e9,
		AloneAlpha: m.alone.alpha, AloneBandwidth: m.alone.bandwidth,
	}
	if s.Seconds > 0 {
		s.BytesPerSecond = float64(s.Bytes) / s.Seconds
	}
	return s
}

// newCopier creates a copier. The caller sets ended. It is called for each chunk, in
// order, after the chunk's copies have ended.
func newCopier(c *cudadrv.Context, to direction, ring *cudadrv.Pinned, cfg transport.Config) (k *copier, err error) {
	k = &copier{context: c, bound: c.Binder(), to: to, ring: ring, spin: gpumem.Spin(cfg), added: make(chan launched, ringPlaces)}
	k.add = k.addBound
	err = c.Do(func() (err error) {
		if k.stream, err = c.NewStream(); err != nil {
			return err
		}
		for i := range k.marks {
			if k.marks[i].begin, err = c.NewEvent(); err != nil {
				return err
			}
			if k.marks[i].end, err = c.NewEvent(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, k.close())
	}
	return k, nil
}

// launch starts the copies of a chunk between the pieces of device memory at base and a
// place of the ring. In the ring the pieces lie one after another.
func (k *copier) launch(place int, base cudadrv.DevicePointer, pieces []piece, bytes int64) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.copies.Reset()
	at := k.ring.At(offset(place))
	for _, p := range pieces {
		device := base + cudadrv.DevicePointer(p.offset)
		if k.to == fromHost {
			k.copies.Add(device, at, p.length)
		} else {
			k.copies.Add(at, device, p.length)
		}
		at += cudadrv.DevicePointer(p.length)
	}
	if err := k.bound.Do(k.add); err != nil {
		return k.explain(err)
	}
	k.added <- launched{place, k.next, bytes} // has room: at most one per place
	k.next = (k.next + 1) % len(k.marks)
	return nil
}

// addBound adds the collected copies and their marks to the stream.
func (k *copier) addBound() error {
	m := &k.marks[k.next]
	if err := m.begin.Record(k.stream); err != nil {
		return err
	}
	var err error
	if k.to == fromHost {
		err = k.stream.CopyFromHost(&k.copies)
	} else {
		err = k.stream.CopyToHost(&k.copies)
	}
	if err != nil {
		return err
	}
	return m.end.Record(k.stream)
}

// finish waits for copies in the stream's order until closing.
func (k *copier) finish(closing <-chan struct{}) error {
	return k.context.Do(func() error {
		for {
			var l launched
			select {
			case <-closing:
				return nil
			case l = <-k.added:
			}
			if err := k.await(l); err != nil {
				return k.explain(err)
			}
			if err := k.ended(l.place); err != nil {
				return err
			}
		}
	})
}

// await waits until a chunk's copies have ended, and counts their time.
func (k *copier) await(l launched) error {
	m := k.marks[l.mark]
	if err := m.end.Await(k.spin); err != nil {
		return err
	}
	took, err := m.end.Since(m.begin)
	k.meter.count(l.bytes, took)
	return err
}

func (k *copier) explain(err error) error {
	what := "from"
	if k.to == fromHost {
		what = "to"
	}
	return fmt.Errorf("%w: copy %s CUDA device %d: %w", transport.ErrDevice, what, k.context.Device.Ordinal, err)
}

// wait returns when no launched copy is in flight. Its error wraps gpumem.ErrUnderWay.
func (k *copier) wait() error {
	if k.stream == nil {
		return nil
	}
	if err := k.context.Do(k.stream.Synchronize); err != nil {
		return k.explain(fmt.Errorf("%w: %w", err, gpumem.ErrUnderWay))
	}
	return nil
}

// close frees the events and the stream. The caller must have waited for the copies.
func (k *copier) close() error {
	return k.context.Do(func() error {
		if k.stream == nil {
			return nil
		}
		var errs []error
		for _, m := range k.marks {
			for _, e := range []*cudadrv.Event{m.begin, m.end} {
				if e != nil {
					errs = append(errs, e.Close())
				}
			}
		}
		return errors.Join(append(errs, k.stream.Close())...)
	})
}
