package tcp

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"kvbench/transport"
)

// slot holds one outstanding transfer of the initiator.
type slot struct {
	transfer transport.Transfer
	local    *region
	bytes    int64
	parts    int      // number of streams that share the transfer
	first    int      // the stream of part 0
	cuts     []cursor // start of each part, then the end

	state    atomic.Int32 // slotFree, slotPosted
	unsent   atomic.Int32 // parts not yet handed to the kernel
	open     atomic.Int32 // events still to come before delivery: see settle and readData
	localAt  atomic.Int64 // time.Duration of local completion
	position []cursor     // READ: place of each part's next byte
}

const (
	slotFree int32 = iota
	slotPosted
)

// work is one job of a stream's writer.
type work struct {
	slot int
	part int
	// done marks the notice for a READ that arrived. The other fields are copies,
	// because the slot may hold another transfer by the time the notice is sent.
	done   bool
	id     uint64
	region uint32
	bytes  uint64
	parts  int
}

// initiator implements transport.Initiator.
type initiator struct {
	*connection
	slots   []slot
	done    *transport.Completions
	queues  []chan work
	remote  map[uint32]int64 // sizes of imported regions
	nextOne int              // stream for the next transfer that is too small to split
}

// minPart is the smallest part, in bytes, that is worth a separate stream.
const minPart = 64 << 10

func newInitiator(c *connection) *initiator {
	n := c.cfg.MaxOutstanding
	in := &initiator{
		connection: c,
		slots:      make([]slot, n),
		done:       transport.NewCompletions(n, c.dead),
		queues:     make([]chan work, len(c.streams)),
		remote:     make(map[uint32]int64),
	}
	for i := range in.slots {
		in.slots[i].cuts = make([]cursor, len(c.streams)+1)
		in.slots[i].position = make([]cursor, len(c.streams))
	}
	for i := range in.queues {
		// Every outstanding transfer can have one entry to send and one notice.
		in.queues[i] = make(chan work, 2*n+1)
		c.run(func() error { return in.write(i) })
		c.run(func() error { return in.read(i) })
	}
	c.run(in.watch)
	c.supervise(in.failOutstanding)
	return in
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
		in.remote[r.ID] = r.Size
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
	total, err := in.check(t)
	if err != nil {
		in.done.Return(i)
		return err
	}
	local := in.regions.get(t.Local.ID)
	if local == nil || !local.acquire() {
		in.done.Return(i)
		return fmt.Errorf("post from region %d: %w", t.Local.ID, transport.ErrRegion)
	}
	s := &in.slots[i]
	s.transfer, s.local, s.bytes = t, local, total
	s.parts = in.split(s)
	s.first = 0
	if s.parts == 1 {
		s.first = in.nextOne
		in.nextOne = (in.nextOne + 1) % len(in.queues)
	}
	s.unsent.Store(int32(s.parts))
	s.open.Store(int32(s.parts))
	if t.Op == transport.Write {
		s.open.Add(1)
	}
	// The slot may be reused as soon as the last part is queued.
	first, parts := s.first, s.parts
	s.state.Store(slotPosted)
	for part := range parts {
		in.queues[(first+part)%len(in.queues)] <- work{slot: i, part: part}
	}
	select {
	case <-in.stopped:
		// The connection may have failed all outstanding transfers just before this one
		// was posted.
		in.failOutstanding()
	default:
	}
	return nil
}

func (in *initiator) check(t transport.Transfer) (int64, error) {
	if t.Op != transport.Write && t.Op != transport.Read {
		return 0, fmt.Errorf("post %v: %w", t.Op, transport.ErrUnsupported)
	}
	local := in.regions.get(t.Local.ID)
	if local == nil {
		return 0, fmt.Errorf("post from region %d: %w", t.Local.ID, transport.ErrRegion)
	}
	size, ok := in.remote[t.Remote.ID]
	if !ok {
		return 0, fmt.Errorf("post to remote region %d: %w", t.Remote.ID, transport.ErrRegion)
	}
	if len(t.Descriptors) > in.cfg.MaxDescriptors {
		return 0, fmt.Errorf("post %d descriptors where %d are allowed: %w", len(t.Descriptors), in.cfg.MaxDescriptors, transport.ErrBounds)
	}
	return transport.CheckDescriptors(t.Descriptors, int64(len(local.mem)), size)
}

// split divides the slot's bytes evenly over streams and returns how many share it.
func (in *initiator) split(s *slot) int {
	parts := int(min(int64(len(in.streams)), max(1, s.bytes/minPart)))
	cut(s.transfer.Descriptors, s.bytes, s.cuts[:parts+1])
	copy(s.position, s.cuts[:parts])
	return parts
}

// Poll implements transport.Initiator.
func (in *initiator) Poll(done []transport.Completion) (int, error) {
	return in.done.Poll(done, in.Err)
}

// Wait implements transport.Initiator.
func (in *initiator) Wait(ctx context.Context) error { return in.done.Wait(ctx) }

// complete ends a transfer once. It returns false if the transfer had already ended.
func (in *initiator) complete(i int, c transport.Completion) bool {
	s := &in.slots[i]
	if !s.state.CompareAndSwap(slotPosted, slotFree) {
		return false
	}
	s.local.release()
	in.done.Put(i, c)
	return true
}

// failOutstanding completes every outstanding transfer with the connection's error.
func (in *initiator) failOutstanding() {
	err := in.Err()
	for i := range in.slots {
		s := &in.slots[i]
		if s.state.Load() != slotPosted {
			continue
		}
		in.complete(i, transport.Completion{ID: s.transfer.ID, Stage: transport.Delivered, Bytes: s.bytes, Delivered: transport.Now(), Err: err})
	}
}

// outstanding reports whether a transfer awaits delivery.
func (in *initiator) outstanding() bool {
	for i := range in.slots {
		if in.slots[i].state.Load() == slotPosted {
			return true
		}
	}
	return false
}

// watch fails the connection if a transfer is outstanding and no byte has moved, here
// or in the kernel's buffers, for the peer timeout.
func (in *initiator) watch() error {
	every := max(in.cfg.PeerTimeout/10, 10*time.Millisecond)
	tick := time.NewTicker(every)
	defer tick.Stop()
	last, since := int64(-1), time.Now()
	for {
		select {
		case <-in.closing:
			return nil
		case <-tick.C:
		}
		if now := in.moved(); now != last || !in.outstanding() {
			last, since = now, time.Now()
			continue
		}
		if time.Since(since) >= in.cfg.PeerTimeout {
			return fmt.Errorf("%w: nothing moved for %v with transfers outstanding", transport.ErrPeer, in.cfg.PeerTimeout)
		}
	}
}

// partOf returns the index of the transfer's part that a stream carries, or -1.
func (in *initiator) partOf(s *slot, stream int) int {
	n := len(in.streams)
	if part := (stream - s.first + n) % n; part < s.parts {
		return part
	}
	return -1
}
