package staged

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"kvbench/internal/gpumem"
	"kvbench/transport"
)

// slot holds one outstanding transfer of the initiator.
type slot struct {
	transfer transport.Transfer
	local    *region
	bytes    int64
	chunks   int

	posted   atomic.Bool
	unstaged atomic.Int32 // WRITE: chunks not yet copied to the host
	open     atomic.Int32 // chunks not yet at their destination
	localAt  atomic.Int64 // time.Duration of local completion
}

// chunkState is the stage that the chunk in a place has reached.
type chunkState int32

const (
	chunkFree     chunkState = iota
	chunkCopying             // between this side's device memory and its ring
	chunkOnWire              // posted to the inner transport
	chunkAwaiting            // the peer stages it (READ) or lands it (WRITE)
)

// chunk is the chunk in flight in one place of the ring.
type chunk struct {
	slot          int
	bytes         int64
	local, remote []piece

	mu     sync.Mutex
	state  chunkState
	landed bool          // WRITE: the peer reported it, which can come before the inner completion
	since  time.Duration // when the state began
}

// initiator implements transport.Initiator.
type initiator struct {
	*connection
	slots   []slot
	done    *transport.Completions
	queue   chan int // slots to be cut into chunks
	places  chan int // free places
	chunks  [ringPlaces]chunk
	peer    transport.Initiator // the inner connection
	there   transport.RemoteRegion
	posting sync.Mutex // serializes Post and Poll of the inner connection
	onWire  [ringPlaces]transport.Descriptor
	carried meter
	freed   time.Duration // when the wire delivered the previous chunk; used by reap only

	remotes struct {
		sync.Mutex
		sizes map[uint32]int64
	}
	heard atomic.Int64 // time.Duration of the last frame from the target
}

var _ transport.Initiator = (*initiator)(nil)

// newInitiator returns an initiator for a connection after the peer's ring was
// imported.
func newInitiator(c *connection, inner transport.Initiator, there transport.RemoteRegion) *initiator {
	n := c.cfg.MaxOutstanding
	in := &initiator{
		connection: c, slots: make([]slot, n), done: transport.NewCompletions(n, c.dead),
		queue: make(chan int, n), places: make(chan int, ringPlaces), peer: inner, there: there,
	}
	in.remotes.sizes = make(map[uint32]int64)
	c.wire = &in.carried
	for i := range in.chunks {
		in.chunks[i].local, in.chunks[i].remote = make([]piece, 0, chunkPieces), make([]piece, 0, chunkPieces)
		in.places <- i
	}
	c.out.ended, c.in.ended = in.staged, in.landed
	return in
}

func (in *initiator) start() {
	in.run(in.feed)
	in.run(in.reap)
	in.run(in.watch)
	in.listen(in.handle)
	in.run(func() error { return in.out.finish(in.closing) })
	in.run(func() error { return in.in.finish(in.closing) })
	in.supervise(in.failOutstanding)
}

// Import implements transport.Initiator.
func (in *initiator) Import(ad transport.Advertisement) ([]transport.RemoteRegion, error) {
	var regions []transport.RemoteRegion
	if err := json.Unmarshal(ad, &regions); err != nil {
		return nil, fmt.Errorf("read advertisement: %w: %w", transport.ErrProtocol, err)
	}
	for _, r := range regions {
		if r.Size < 0 {
			return nil, fmt.Errorf("read advertisement: region %d of %d bytes: %w", r.ID, r.Size, transport.ErrProtocol)
		}
		in.remotes.Lock()
		in.remotes.sizes[r.ID] = r.Size
		in.remotes.Unlock()
	}
	return regions, nil
}

// Post implements transport.Initiator.
func (in *initiator) Post(t transport.Transfer) error {
	if err := in.Err(); err != nil {
		return err
	}
	i, ok := in.done.Take()
	if !ok {
		return transport.ErrQueueFull
	}
	if err := in.fill(&in.slots[i], t); err != nil {
		in.done.Return(i)
		return err
	}
	in.queue <- i // has room for every slot
	select {
	case <-in.stopped:
		// The connection may have failed all outstanding transfers just before this one
		// was posted.
		in.failOutstanding()
	default:
	}
	return nil
}

// fill checks a transfer and puts it into a slot.
func (in *initiator) fill(s *slot, t transport.Transfer) error {
	if t.Op != transport.Write && t.Op != transport.Read {
		return fmt.Errorf("post %v: %w", t.Op, transport.ErrUnsupported)
	}
	in.remotes.Lock()
	size, ok := in.remotes.sizes[t.Remote.ID]
	in.remotes.Unlock()
	if !ok {
		return fmt.Errorf("post to remote region %d: %w", t.Remote.ID, transport.ErrRegion)
	}
	if len(t.Descriptors) > in.cfg.MaxDescriptors {
		return fmt.Errorf("post %d descriptors where %d are allowed: %w", len(t.Descriptors), in.cfg.MaxDescriptors, transport.ErrBounds)
	}
	local := in.regions.acquire(t.Local.ID)
	if local == nil {
		return fmt.Errorf("post from region %d: %w", t.Local.ID, transport.ErrRegion)
	}
	total, err := transport.CheckDescriptors(t.Descriptors, local.size, size)
	if err != nil {
		in.regions.release(local)
		return fmt.Errorf("post: %w", err)
	}
	s.transfer, s.local, s.bytes = t, local, total
	s.chunks = newCutter(&s.transfer, total).count()
	s.unstaged.Store(int32(s.chunks))
	s.open.Store(int32(s.chunks))
	s.localAt.Store(0)
	s.posted.Store(true)
	return nil
}

// Poll implements transport.Initiator.
func (in *initiator) Poll(done []transport.Completion) (int, error) {
	return in.done.Poll(done, in.Err)
}

// Wait implements transport.Initiator.
func (in *initiator) Wait(ctx context.Context) error { return in.done.Wait(ctx) }

// Deregister implements transport.Endpoint.
func (in *initiator) Deregister(r transport.Region) error { return in.regions.remove(r.ID) }

// complete ends a transfer once.
func (in *initiator) complete(i int, c transport.Completion) {
	s := &in.slots[i]
	if !s.posted.CompareAndSwap(true, false) {
		return
	}
	in.regions.release(s.local)
	in.done.Put(i, c)
}

// failOutstanding completes every outstanding transfer with the connection's error.
func (in *initiator) failOutstanding() {
	err := in.Err()
	for i := range in.slots {
		if s := &in.slots[i]; s.posted.Load() {
			in.complete(i, transport.Completion{ID: s.transfer.ID, Stage: transport.Delivered, Bytes: s.bytes, Delivered: transport.Now(), Err: err})
		}
	}
}

// watch fails the connection if the target has a chunk and sends no frame for the peer
// timeout. The inner connection watches the chunks on its wire.
func (in *initiator) watch() error {
	return gpumem.WatchPeer(in.closing, in.cfg.PeerTimeout, &in.heard, in.owed)
}

// owed reports whether the target has held a chunk since before a time.
func (in *initiator) owed(before time.Duration) bool {
	for i := range in.chunks {
		c := &in.chunks[i]
		c.mu.Lock()
		late := c.state == chunkAwaiting && c.since < before
		c.mu.Unlock()
		if late {
			return true
		}
	}
	return false
}
