package cuda

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"kvbench/internal/cudadrv"
	"kvbench/internal/gpumem"
	"kvbench/transport"
)

// slot holds one outstanding transfer of the initiator.
type slot struct {
	transfer transport.Transfer
	local    *region
	remote   *remoteRegion
	bytes    int64
	parts    int // number of streams that share it
	first    int // the stream of part 0

	state    atomic.Int32 // slotFree, slotPosted
	copying  atomic.Int32 // parts with copies that have not ended
	localAt  atomic.Int64 // time.Duration when the end of the last copy was seen
	noticeAt atomic.Int64 // time.Duration when a WRITE's notice left; 0 before
}

const (
	slotFree int32 = iota
	slotPosted
)

// initiator implements transport.Initiator.
type initiator struct {
	*connection
	slots   []slot
	done    *transport.Completions
	nextOne int // stream for the next transfer that is too small to split

	remote remoteTable

	setting sync.Mutex // serializes Register, Import and their undoing, which may be slow
	context *cudadrv.Context
	lanes   []*lane
	peer    *cudadrv.UUID // device of the first imported region
	shares  sharing       // how the first imported region is shared
	opens   openStats
	wanted  wanted

	heard atomic.Int64 // time.Duration of the last frame from the target
}

// openStats counts the openings of the peer's memory and their time.
type openStats struct {
	opened, reused int
	took           time.Duration
}

// minPart is the smallest part, in bytes, that is worth a separate stream.
const minPart = 1 << 20

func newInitiator(l link) *initiator {
	n := l.cfg.MaxOutstanding
	c := newConnection(l)
	in := &initiator{connection: c, slots: make([]slot, n), done: transport.NewCompletions(n, c.dead)}
	in.run(in.listen)
	in.run(in.watch)
	in.supervise(in.letGo, func() {
		in.failOutstanding()
		if errors.Is(in.closeErr, gpumem.ErrUnderWay) {
			held.keep(in.net) // its end would signal the target that its memory is free
			return
		}
		// Close after failOutstanding, so that the target does not report the loss of
		// this side before this side has reported its error.
		in.net.Close()
	})
	return in
}

// held keeps sockets open until this process ends. Without it a finalizer would close
// them.
var held sockets

type sockets struct {
	mu  sync.Mutex
	all []net.Conn
}

func (s *sockets) keep(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, c)
}

// Register implements transport.Endpoint. The first region sets the device that copies.
// All later regions must lie on that device.
func (in *initiator) Register(m transport.Memory) (transport.Region, error) {
	if err := in.Err(); err != nil {
		return transport.Region{}, err // before any error about the memory
	}
	if err := checkMemory(m); err != nil {
		return transport.Region{}, err
	}
	c, err := in.driver.Context(m.Device)
	if err != nil {
		return transport.Region{}, err
	}
	if err := gpumem.CheckRange(c, m); err != nil {
		return transport.Region{}, err
	}
	in.setting.Lock()
	defer in.setting.Unlock()
	if err := in.Err(); err != nil {
		return transport.Region{}, err
	}
	if in.context == nil {
		if err := in.useDevice(c); err != nil {
			return transport.Region{}, err
		}
	}
	if in.context != c {
		return transport.Region{}, fmt.Errorf("register memory of CUDA device %d beside that of device %d: an initiator has one; use a connection for each: %w",
			m.Device, in.context.Device.Ordinal, transport.ErrUnsupported)
	}
	r := in.regions.add(c, m, cudadrv.Exported{})
	return transport.Region{ID: r.id, Size: r.size}, nil
}

// useDevice creates the streams on the device and opens the imported regions there.
func (in *initiator) useDevice(c *cudadrv.Context) error {
	lanes, err := newLanes(c, in.cfg)
	if err != nil {
		return err
	}
	for _, r := range in.remote.all() {
		if err := in.open(c, r); err != nil {
			return errors.Join(err, in.unmap(), closeLanes(c, lanes))
		}
	}
	if err := in.send(frame{typ: frameDevice, device: c.Device.UUID}); err != nil {
		in.fail(err)
		return errors.Join(err, in.unmap(), closeLanes(c, lanes))
	}
	in.context, in.lanes = c, lanes
	for _, l := range lanes {
		in.run(func() error { return c.Do(func() error { return in.issue(l) }) })
		in.run(func() error { return c.Do(func() error { return in.finish(l) }) })
	}
	return nil
}

// open maps a remote region, unless the target has withdrawn it.
func (in *initiator) open(c *cudadrv.Context, r *remoteRegion) error {
	if !r.acquire() {
		return nil
	}
	defer r.release()
	m, fresh, err := openMapping(c, r.advertised, func() (*os.File, error) { return in.askDescriptor(r.ID) })
	if err != nil {
		return err
	}
	if err := m.check(r.advertised); err != nil {
		return errors.Join(err, m.release())
	}
	r.mapping = m
	if fresh {
		in.opens.opened++
		in.opens.took += m.took
	} else {
		in.opens.reused++
	}
	return nil
}

// Deregister implements transport.Endpoint.
func (in *initiator) Deregister(reg transport.Region) error {
	r := in.regions.get(reg.ID)
	if r == nil {
		return fmt.Errorf("deregister region %d: %w", reg.ID, transport.ErrRegion)
	}
	if !r.withdrawUnused() {
		return fmt.Errorf("deregister region %d: %w", reg.ID, transport.ErrBusy)
	}
	in.regions.remove(reg.ID)
	return nil
}

// Import implements transport.Initiator. It opens the regions' memory if the copying
// device is set. Otherwise the first Register opens it.
func (in *initiator) Import(ad transport.Advertisement) ([]transport.RemoteRegion, error) {
	all, err := parseAdvertisement(ad)
	if err != nil {
		return nil, err
	}
	in.setting.Lock()
	defer in.setting.Unlock()
	if err := in.Err(); err != nil {
		return nil, err
	}
	regions := make([]transport.RemoteRegion, len(all))
	for i, a := range all {
		regions[i] = transport.RemoteRegion{ID: a.ID, Size: a.Size}
		r := &remoteRegion{uses: newUses(), advertised: a}
		if there := in.remote.add(r); there != r {
			if there.withdrawn() {
				return nil, fmt.Errorf("import region %d, which the peer has withdrawn: %w", a.ID, transport.ErrRegion)
			}
			continue
		}
		if in.context != nil {
			if err := in.open(in.context, r); err != nil {
				in.remote.remove(r)
				return nil, err
			}
		}
		if in.peer == nil {
			owner := a.owner()
			in.peer, in.shares = &owner, a.Sharing
		}
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
	s := &in.slots[i]
	if err := in.fill(s, t); err != nil {
		in.done.Return(i)
		return err
	}
	// The slot may be reused as soon as the last part is queued.
	first, parts := s.first, s.parts
	s.state.Store(slotPosted)
	for part := range parts {
		in.lanes[(first+part)%len(in.lanes)].jobs <- job{slot: i, part: part}
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

// fill checks a transfer and puts it into a slot.
func (in *initiator) fill(s *slot, t transport.Transfer) error {
	local, remote, total, err := in.check(t)
	if err != nil {
		return err
	}
	if !local.acquire() {
		return fmt.Errorf("post from region %d: %w", t.Local.ID, transport.ErrRegion)
	}
	if !remote.acquire() {
		local.release()
		return fmt.Errorf("post to remote region %d, which the peer has withdrawn: %w", t.Remote.ID, transport.ErrRegion)
	}
	s.transfer, s.local, s.remote, s.bytes = t, local, remote, total
	s.noticeAt.Store(0)
	in.split(s)
	return nil
}

func (in *initiator) check(t transport.Transfer) (*region, *remoteRegion, int64, error) {
	if t.Op != transport.Write && t.Op != transport.Read {
		return nil, nil, 0, fmt.Errorf("post %v: %w", t.Op, transport.ErrUnsupported)
	}
	local := in.regions.get(t.Local.ID)
	if local == nil {
		return nil, nil, 0, fmt.Errorf("post from region %d: %w", t.Local.ID, transport.ErrRegion)
	}
	remote := in.remote.get(t.Remote.ID)
	if remote == nil {
		return nil, nil, 0, fmt.Errorf("post to remote region %d: %w", t.Remote.ID, transport.ErrRegion)
	}
	if len(t.Descriptors) > in.cfg.MaxDescriptors {
		return nil, nil, 0, fmt.Errorf("post %d descriptors where %d are allowed: %w", len(t.Descriptors), in.cfg.MaxDescriptors, transport.ErrBounds)
	}
	total, err := transport.CheckDescriptors(t.Descriptors, local.size, remote.Size)
	if err != nil {
		return nil, nil, 0, fmt.Errorf("post: %w", err)
	}
	return local, remote, total, nil
}

// split sets the streams that share the slot's bytes.
func (in *initiator) split(s *slot) {
	s.parts = int(min(int64(len(in.lanes)), max(1, s.bytes/minPart)))
	s.first = 0
	if s.parts == 1 {
		s.first = in.nextOne
		in.nextOne = (in.nextOne + 1) % len(in.lanes)
	}
	s.copying.Store(int32(s.parts))
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
	s.remote.release()
	in.done.Put(i, c)
	return true
}

// failOutstanding completes every outstanding transfer with the connection's error.
func (in *initiator) failOutstanding() {
	err, underWay := in.Err(), errors.Is(in.closeErr, gpumem.ErrUnderWay)
	for i := range in.slots {
		s := &in.slots[i]
		if s.state.Load() == slotPosted {
			if underWay {
				s.local.acquire() // keeps the region in use, so that Deregister returns ErrBusy
			}
			in.complete(i, transport.Completion{ID: s.transfer.ID, Stage: transport.Delivered, Bytes: s.bytes, Delivered: transport.Now(), Err: err})
		}
	}
}

// letGo waits for the copies in flight and closes the opened memory. After that the end
// of the socket signals the target that its memory is free. If waiting for the copies
// fails, the error wraps gpumem.ErrUnderWay, and the memory stays open.
func (in *initiator) letGo() error {
	in.setting.Lock()
	defer in.setting.Unlock()
	if in.context == nil {
		return in.unmap()
	}
	if err := waitLanes(in.context, in.lanes); err != nil {
		return err
	}
	return errors.Join(closeLanes(in.context, in.lanes), in.unmap())
}

// unmap closes every remote region that is open.
func (in *initiator) unmap() error {
	var errs []error
	for _, r := range in.remote.all() {
		errs = append(errs, r.unmap())
	}
	return errors.Join(errs...)
}
