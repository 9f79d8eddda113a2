package rdma

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"kvbench/internal/ucx"
	"kvbench/transport"
)

// slot holds one outstanding transfer of the initiator.
type slot struct {
	id    uint64
	bytes int64
	read  bool
	// reportLocal requests a local completion too.
	reportLocal bool
	local       *region
	remote      *remote
	localAt     time.Duration
	posted      atomic.Bool
}

// remote is a region of the target.
type remote struct {
	advertised
	key ucx.Remote

	mu        sync.Mutex
	uses      int  // guarded by mu
	withdrawn bool // guarded by mu: must not be used any more
}

// maxRemotes is the most regions of a peer that a connection may see in its life. It
// bounds the memory for them.
const maxRemotes = 1 << 20

// initiator implements transport.Initiator.
type initiator struct {
	*connection
	slots   []slot
	done    *transport.Completions
	remotes struct {
		sync.Mutex
		byID   map[uint32]*remote
		coming map[uint32]*remote  // being imported; the import holds one use
		known  map[uint32]struct{} // every ID that was imported or withdrawn; an ID is never reused
	}
	importing sync.Mutex
	stopped   chan struct{} // closed when the engine has ended
}

var _ transport.Initiator = (*initiator)(nil)

func newInitiator(c *connection) *initiator {
	in := &initiator{connection: c, slots: make([]slot, c.cfg.MaxOutstanding), done: transport.NewCompletions(c.cfg.MaxOutstanding, c.dead), stopped: make(chan struct{})}
	in.remotes.byID, in.remotes.coming, in.remotes.known = make(map[uint32]*remote), make(map[uint32]*remote), make(map[uint32]struct{})
	c.engine.handle = in.happened
	return in
}

func (in *initiator) start() {
	in.wg.Go(in.watch)
	in.connection.start(in.hear, func() {
		close(in.stopped)
		in.failOutstanding()
	})
}

// hear processes a message of the target.
func (in *initiator) hear(m message) error {
	in.remotes.Lock()
	r := in.remotes.byID[m.Withdraw]
	if r == nil {
		r = in.remotes.coming[m.Withdraw]
	}
	_, known := in.remotes.known[m.Withdraw]
	full := !known && len(in.remotes.known) >= maxRemotes
	in.remotes.known[m.Withdraw] = struct{}{}
	in.remotes.Unlock()
	if full {
		return fmt.Errorf("region %d withdrawn after %d others: %w", m.Withdraw, maxRemotes, transport.ErrProtocol)
	}
	if r == nil { // not imported, and cannot be any more, so no transfer uses it
		return in.socket.Send(message{Withdrawn: m.Withdraw})
	}
	if !r.withdraw() {
		return nil // release answers, or letGo has answered
	}
	return in.letGo(r)
}

// withdraw allows no new use of a remote region. It returns true if the caller must
// answer the target now: at most once, and only if no transfer uses the region.
func (r *remote) withdraw() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.withdrawn
	r.withdrawn = true
	return !before && r.uses == 0
}

func (r *remote) isWithdrawn() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.withdrawn
}

// letGo removes a withdrawn region and confirms the withdrawal to the target. The
// region stays in the table until then, so that a second withdrawal is not confirmed
// too early.
func (in *initiator) letGo(r *remote) error {
	in.remotes.Lock()
	delete(in.remotes.byID, r.ID)
	in.remotes.Unlock()
	return in.socket.Send(message{Withdrawn: r.ID})
}

// acquire adds one use to a remote region. It returns false if the region is withdrawn.
func (r *remote) acquire() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.withdrawn {
		return false
	}
	r.uses++
	return true
}

func (in *initiator) release(r *remote) {
	r.mu.Lock()
	r.uses--
	answer := r.withdrawn && r.uses == 0
	r.mu.Unlock()
	if answer { // in a goroutine, because the engine is held and must not wait for a socket
		in.wg.Go(func() {
			// If this fails, the target is gone.
			_ = in.letGo(r)
		})
	}
}

// Import implements transport.Initiator.
func (in *initiator) Import(ad transport.Advertisement) ([]transport.RemoteRegion, error) {
	in.importing.Lock()
	defer in.importing.Unlock()
	regions, err := parseAdvertisement(ad)
	if err != nil {
		return nil, err
	}
	imported := make([]transport.RemoteRegion, len(regions))
	for i, a := range regions {
		if err := in.importOne(a); err != nil {
			return nil, fmt.Errorf("import region %d: %w", a.ID, err)
		}
		imported[i] = transport.RemoteRegion{ID: a.ID, Size: a.Size}
	}
	return imported, nil
}

// importOne imports a region, unless it is already imported.
func (in *initiator) importOne(a advertised) error {
	r, err := in.claim(a)
	if r == nil {
		return err
	}
	direct, err := in.open(r)
	if err == nil && a.Size > 0 {
		err = in.socket.Send(message{Imported: a.ID, Direct: direct})
	}
	return in.settle(r, err)
}

// settle ends the import of a claimed region, with err as its result. If the region was
// withdrawn meanwhile, settle answers the withdrawal.
func (in *initiator) settle(r *remote, err error) error {
	in.remotes.Lock()
	delete(in.remotes.coming, r.ID)
	if err == nil {
		in.remotes.byID[r.ID] = r
	}
	in.remotes.Unlock()
	if err == nil && r.isWithdrawn() {
		err = errWithdrawn
	}
	in.release(r)
	return err
}

var errWithdrawn = fmt.Errorf("its owner has withdrawn it: %w", transport.ErrRegion)

// claim reserves the ID of a region and returns the region with one use. It returns nil
// without an error if the region is already imported. A withdrawn ID is refused,
// because the advertisement is stale.
func (in *initiator) claim(a advertised) (*remote, error) {
	in.remotes.Lock()
	defer in.remotes.Unlock()
	if r := in.remotes.byID[a.ID]; r != nil {
		switch {
		case r.isWithdrawn():
			return nil, errWithdrawn
		case r.Size != a.Size || r.Address != a.Address:
			return nil, fmt.Errorf("advertised again as another: %w", transport.ErrProtocol)
		}
		return nil, nil
	}
	if _, known := in.remotes.known[a.ID]; known {
		return nil, errWithdrawn
	}
	if len(in.remotes.known) >= maxRemotes {
		return nil, fmt.Errorf("%d regions of this connection were before it: %w", maxRemotes, transport.ErrProtocol)
	}
	r := &remote{advertised: a, uses: 1}
	in.remotes.known[a.ID], in.remotes.coming[a.ID] = struct{}{}, r
	return r, nil
}

// open imports a region's key. direct reports whether this side's CPU can access the
// memory. Active messages are placed by the target and need no key.
func (in *initiator) open(r *remote) (direct bool, err error) {
	if r.Size == 0 || in.cfg.Operation == opAM {
		return false, nil
	}
	if !in.engine.do(func() {
		if r.key, err = in.engine.worker.Import(r.Key); err == nil {
			direct = in.engine.worker.Direct(r.key, r.Address)
		}
	}) {
		return false, in.Err()
	}
	return direct, err
}

// operation returns the UCX operation for a direction.
func (in *initiator) operation(op transport.Op) (ucx.Op, error) {
	switch {
	case op == transport.Write && (in.cfg.Operation == "" || in.cfg.Operation == opPut):
		return ucx.Put, nil
	case op == transport.Write && in.cfg.Operation == opAM:
		return ucx.ActiveMessage, nil
	case op == transport.Read && (in.cfg.Operation == "" || in.cfg.Operation == opGet):
		return ucx.Get, nil
	}
	return 0, fmt.Errorf("post %v by %q: %w", op, in.cfg.Operation, transport.ErrUnsupported)
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
	if err := in.fill(i, t); err != nil {
		in.done.Return(i)
		return err
	}
	in.engine.post(i)
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
func (in *initiator) fill(i int, t transport.Transfer) error {
	op, err := in.operation(t.Op)
	if err != nil {
		return err
	}
	if len(t.Descriptors) > in.cfg.MaxDescriptors {
		return fmt.Errorf("post %d descriptors where %d are allowed: %w", len(t.Descriptors), in.cfg.MaxDescriptors, transport.ErrBounds)
	}
	in.remotes.Lock()
	r := in.remotes.byID[t.Remote.ID]
	in.remotes.Unlock()
	if r == nil {
		return fmt.Errorf("post to remote region %d: %w", t.Remote.ID, transport.ErrRegion)
	}
	local := in.regions.acquire(t.Local.ID)
	if local == nil {
		return fmt.Errorf("post from region %d: %w", t.Local.ID, transport.ErrRegion)
	}
	total, err := transport.CheckDescriptors(t.Descriptors, local.size, r.Size)
	if err == nil && !r.acquire() {
		err = fmt.Errorf("post to remote region %d: %w", t.Remote.ID, errWithdrawn)
	}
	if err == nil {
		if err = in.cut(i, op, t, total, local, r); err != nil {
			in.release(r)
		}
	}
	if err != nil {
		in.regions.release(local)
		return err
	}
	s := &in.slots[i]
	s.id, s.bytes, s.read, s.reportLocal, s.local, s.remote, s.localAt = t.ID, total, t.Op == transport.Read, t.ReportLocal, local, r, 0
	s.posted.Store(true)
	return nil
}

// cut divides a transfer's descriptors into UCX operations of at most maxPiece bytes.
func (in *initiator) cut(i int, op ucx.Op, t transport.Transfer, total int64, local *region, r *remote) error {
	if !in.engine.borrow() {
		return in.Err()
	}
	defer in.engine.giveBack()
	count := 0
	for _, d := range t.Descriptors {
		count += int((d.Length + maxPiece - 1) / maxPiece)
	}
	empty := count == 0 && op == ucx.ActiveMessage // an empty transfer still needs one message
	if empty {
		count = 1
	}
	pieces := in.engine.worker.Pieces(i, count)
	if pieces == nil {
		return fmt.Errorf("post %d descriptors: out of memory", len(t.Descriptors))
	}
	var from, to uint64 // bases of the local and remote offsets
	var memory ucx.Memory
	if local.memory != nil {
		memory = local.memory.Memory
		from = uint64(memory.Address)
	}
	if op != ucx.ActiveMessage {
		to = r.Address
	}
	n := 0
	for _, d := range t.Descriptors {
		for off := int64(0); off < d.Length; off += maxPiece {
			pieces[n] = ucx.Piece{Local: from + uint64(d.Local+off), Remote: to + uint64(d.Remote+off), Length: uint64(min(maxPiece, d.Length-off))}
			n++
		}
	}
	if empty {
		pieces[0] = ucx.Piece{}
	}
	in.engine.worker.Fill(i, op, t.ID, total, count, memory, r.key, r.ID)
	return nil
}

// Poll implements transport.Initiator.
func (in *initiator) Poll(done []transport.Completion) (int, error) {
	return in.done.Poll(done, in.Err)
}

// Wait implements transport.Initiator.
func (in *initiator) Wait(ctx context.Context) error { return in.done.Wait(ctx) }

// happened handles an event. The engine must be held.
func (in *initiator) happened(e ucx.Event) {
	switch e.Kind {
	case ucx.Local:
		in.reusable(e)
	case ucx.Delivered:
		in.delivered(e)
	case ucx.Failed:
		in.fail(fmt.Errorf("%w: UCX: %s", transport.ErrPeer, ucx.StatusText(int(e.Status))))
	case ucx.Written, ucx.Read:
		in.fail(fmt.Errorf("a target's notice sent to an initiator: %w", transport.ErrProtocol))
	default:
		in.connection.happened(e)
	}
}

// its returns the slot of an event, or nil if no transfer is posted in it.
func (in *initiator) its(e ucx.Event) *slot {
	s := &in.slots[e.Slot]
	if !s.posted.Load() {
		return nil
	}
	return s
}

func (in *initiator) reusable(e ucx.Event) {
	s := in.its(e)
	if s == nil {
		return
	}
	s.localAt = in.engine.at(e)
	if s.reportLocal {
		in.done.Put(int(e.Slot), transport.Completion{ID: s.id, Stage: transport.LocallyComplete, Bytes: s.bytes, Local: s.localAt})
	}
}

func (in *initiator) delivered(e ucx.Event) {
	s, at := in.its(e), in.engine.at(e)
	if s == nil {
		return
	}
	if s.read {
		s.localAt = at
	}
	if err := in.checkUsed(s); err != nil {
		in.fail(transport.Classify(err, transport.ErrLocal))
		return // the end of the connection fails this transfer too
	}
	in.counts.moved(s.bytes, s.read)
	in.complete(int(e.Slot), transport.Completion{ID: s.id, Stage: transport.Delivered, Bytes: s.bytes, Local: s.localAt, Delivered: at})
}

// checkUsed checks the lanes after the first transfer.
func (in *initiator) checkUsed(s *slot) error {
	if in.readBack || s.bytes == 0 {
		return nil
	}
	op := ucx.Get
	native := true
	if !s.read {
		var err error
		if op, err = in.operation(transport.Write); err != nil {
			return err
		}
	}
	if in.family.ownMemory && op != ucx.ActiveMessage {
		native = in.engine.worker.Direct(s.remote.key, s.remote.Address)
	}
	in.readBack = true
	return in.checkLane(op, native)
}

// complete ends a transfer once.
func (in *initiator) complete(i int, c transport.Completion) {
	s := &in.slots[i]
	if !s.posted.CompareAndSwap(true, false) {
		return
	}
	in.regions.release(s.local)
	in.release(s.remote)
	in.done.Put(i, c)
}

// failOutstanding completes every outstanding transfer with the connection's error.
func (in *initiator) failOutstanding() {
	err := transport.Ended(in.Err())
	for i := range in.slots {
		if s := &in.slots[i]; s.posted.Load() {
			in.complete(i, transport.Completion{ID: s.id, Stage: transport.Delivered, Bytes: s.bytes, Delivered: transport.Now(), Err: err})
		}
	}
}

// outstanding reports whether a transfer awaits delivery.
func (in *initiator) outstanding() bool {
	for i := range in.slots {
		if in.slots[i].posted.Load() {
			return true
		}
	}
	return false
}

// watch fails the connection if a transfer is outstanding and nothing has moved for the
// peer timeout. This detects a host that vanished without closing the socket.
func (in *initiator) watch() {
	tick := time.NewTicker(max(in.cfg.PeerTimeout/10, 10*time.Millisecond))
	defer tick.Stop()
	last, since := uint64(0), time.Now()
	for {
		select {
		case <-in.closing:
			return
		case <-tick.C:
		}
		if now := in.engine.moved(); now != last || !in.outstanding() {
			last, since = now, time.Now()
			continue
		}
		if time.Since(since) >= in.cfg.PeerTimeout {
			in.fail(fmt.Errorf("%w: nothing moved for %v with transfers outstanding", transport.ErrPeer, in.cfg.PeerTimeout))
			return
		}
	}
}

// Deregister implements transport.Endpoint.
func (in *initiator) Deregister(r transport.Region) error { return in.deregister(r.ID) }
