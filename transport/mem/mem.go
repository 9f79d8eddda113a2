// Package mem is the reference transport: both sides live in one process and a transfer
// is a copy. It implements the contract in the fewest lines and tests a benchmark run
// without a network. It can also break the contract on purpose, to test the checks of
// other packages.
package mem

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"sync"

	"kvbench/transport"
)

// Fault is a way to break the contract.
type Fault string

// The faults. Each is a mistake that a real transport has made.
const (
	Drop          Fault = "drop"           // leaves out a descriptor
	Swap          Fault = "swap"           // puts two descriptors' bytes in each other's place
	Corrupt       Fault = "corrupt"        // flips a bit
	Truncate      Fault = "truncate"       // leaves out the last byte
	Overrun       Fault = "overrun"        // writes one byte too many
	Early         Fault = "early"          // completes before the bytes are in place
	Lose          Fault = "lose"           // never completes
	Repeat        Fault = "repeat"         // completes twice
	Mute          Fault = "mute"           // delivers without a notice
	LateSource    Fault = "late-source"    // reads the source after local completion
	Unbounded     Fault = "unbounded"      // accepts descriptors that leave their region
	AbandonOnExit Fault = "abandon"        // Close leaves outstanding transfers without a completion
	IgnoreDeath   Fault = "ignore-death"   // does not report that the peer has closed
	IgnoreContext Fault = "ignore-context" // waits on after the context is cancelled
	Stale         Fault = "stale"          // delivers only the first transfer to a place, and reports the later ones as delivered
)

// Faults returns all faults.
func Faults() []Fault {
	return []Fault{Drop, Swap, Corrupt, Truncate, Overrun, Early, Lose, Repeat, Mute, LateSource, Unbounded, AbandonOnExit, IgnoreDeath, IgnoreContext, Stale}
}

// Transport is the in-process transport. Dial reaches the listeners of the same Transport.
type Transport struct {
	faults map[Fault]bool

	mu        sync.Mutex
	next      uint64
	listeners map[uint64]*listener
}

// New returns a transport with the given faults.
func New(faults ...Fault) *Transport {
	t := &Transport{faults: make(map[Fault]bool), listeners: make(map[uint64]*listener)}
	for _, f := range faults {
		t.faults[f] = true
	}
	return t
}

var _ transport.Transport = (*Transport)(nil)

// Name implements transport.Transport.
func (t *Transport) Name() string { return "mem" }

// Probe implements transport.Transport.
func (t *Transport) Probe(context.Context) error { return nil }

// Capabilities implements transport.Transport.
func (t *Transport) Capabilities() transport.Capabilities {
	return transport.Capabilities{Write: true, Read: true, Memory: []transport.MemoryKind{transport.HostMemory}, SameHostOnly: true}
}

// Listen implements transport.Transport.
func (t *Transport) Listen(_ context.Context, cfg transport.Config) (transport.Listener, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next++
	l := &listener{t: t, id: t.next, initiators: make(chan *link, 64), targets: make(chan *link, 64), closed: make(chan struct{})}
	t.listeners[l.id] = l
	return l, nil
}

// Dial implements transport.Transport.
func (t *Transport) Dial(ctx context.Context, addr transport.Address, cfg transport.Config) (transport.Initiator, error) {
	k, err := t.dial(ctx, addr, cfg, func(l *listener) chan *link { return l.initiators })
	if err != nil {
		return nil, err
	}
	return newInitiator(k), nil
}

// DialTarget implements transport.Transport.
func (t *Transport) DialTarget(ctx context.Context, addr transport.Address, cfg transport.Config) (transport.Target, error) {
	k, err := t.dial(ctx, addr, cfg, func(l *listener) chan *link { return l.targets })
	if err != nil {
		return nil, err
	}
	return newTarget(k), nil
}

func (t *Transport) dial(ctx context.Context, addr transport.Address, cfg transport.Config, queue func(*listener) chan *link) (*link, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(addr) != 8 {
		return nil, fmt.Errorf("read mem address: %w", transport.ErrProtocol)
	}
	t.mu.Lock()
	l := t.listeners[binary.BigEndian.Uint64(addr)]
	t.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("dial mem listener: none at this address: %w", transport.ErrPeer)
	}
	k := &link{faults: t.faults, cfg: cfg.WithDefaults(), done: make(chan struct{})}
	select {
	case queue(l) <- k:
		return k, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.closed:
		return nil, fmt.Errorf("dial mem listener: closed: %w", transport.ErrPeer)
	}
}

type listener struct {
	t                   *Transport
	id                  uint64
	initiators, targets chan *link // by the dialler's role
	closed              chan struct{}
	once                sync.Once
}

func (l *listener) Address() transport.Address { return binary.BigEndian.AppendUint64(nil, l.id) }

func (l *listener) AcceptTarget(ctx context.Context) (transport.Target, error) {
	k, err := l.accept(ctx, l.initiators)
	if err != nil {
		return nil, err
	}
	return newTarget(k), nil
}

func (l *listener) AcceptInitiator(ctx context.Context) (transport.Initiator, error) {
	k, err := l.accept(ctx, l.targets)
	if err != nil {
		return nil, err
	}
	return newInitiator(k), nil
}

func (l *listener) accept(ctx context.Context, from chan *link) (*link, error) {
	if l.t.faults[IgnoreContext] {
		ctx = context.WithoutCancel(ctx)
	}
	select {
	case k := <-from:
		return k, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.closed:
		return nil, transport.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		l.t.mu.Lock()
		delete(l.t.listeners, l.id)
		l.t.mu.Unlock()
		close(l.closed)
	})
	return nil
}

// link joins an initiator and a target.
type link struct {
	faults map[Fault]bool
	cfg    transport.Config

	copying sync.Mutex // held while memory of either side is touched

	mu       sync.Mutex
	closedBy *side         // the side that closed first
	done     chan struct{} // closed when closedBy is set
	target   *target
}

// close ends the link. The first call wins.
func (k *link) close(s *side) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closedBy == nil {
		k.closedBy = s
		close(k.done)
	}
}

// whileOpen copies for s, unless the link has ended. The side that ended it may have
// freed its memory.
func (k *link) whileOpen(s *side, copy func()) error {
	k.copying.Lock()
	defer k.copying.Unlock()
	select {
	case <-k.done:
		if err := k.err(s); err != nil {
			return err
		}
		return fmt.Errorf("%w: the connection was closed", transport.ErrPeer) // only under IgnoreDeath: err has returned nil
	default:
		copy()
		return nil
	}
}

// err returns the error that s sees after the link has ended, or nil while it is open.
func (k *link) err(s *side) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch k.closedBy {
	case nil:
		return nil
	case s:
		return transport.ErrClosed
	}
	if k.faults[IgnoreDeath] {
		return nil
	}
	return fmt.Errorf("%w: it closed the connection", transport.ErrPeer)
}

// side is one end of a link. It holds the registered memory and counts its uses.
type side struct {
	*link
	mu      sync.Mutex
	next    uint32
	regions map[uint32][]byte
	uses    map[uint32]int
}

func newSide(k *link) side {
	return side{link: k, regions: make(map[uint32][]byte), uses: make(map[uint32]int)}
}

func (s *side) Register(m transport.Memory) (transport.Region, error) {
	if m.Kind != transport.HostMemory {
		return transport.Region{}, fmt.Errorf("register %s memory: %w", m.Kind, transport.ErrUnsupported)
	}
	if err := s.err(s); err != nil {
		return transport.Region{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	s.regions[s.next] = m.Bytes
	return transport.Region{ID: s.next, Size: int64(len(m.Bytes))}, nil
}

func (s *side) Deregister(r transport.Region) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.regions[r.ID]; !ok {
		return fmt.Errorf("deregister region %d: %w", r.ID, transport.ErrRegion)
	}
	if s.uses[r.ID] > 0 {
		return fmt.Errorf("deregister region %d: %w", r.ID, transport.ErrBusy)
	}
	delete(s.regions, r.ID)
	return nil
}

// use adds n to the uses of a region and returns its memory.
func (s *side) use(id uint32, n int) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.regions[id]
	if !ok {
		return nil, fmt.Errorf("region %d: %w", id, transport.ErrRegion)
	}
	s.uses[id] += n
	return b, nil
}

func (s *side) Path() transport.Path { return transport.Path{Lane: "mem/memcpy", Device: "memory"} }

// target implements transport.Target.
type target struct {
	side
	notices chan transport.Notice
}

func newTarget(k *link) *target {
	t := &target{side: newSide(k), notices: make(chan transport.Notice, k.cfg.MaxOutstanding)}
	k.mu.Lock()
	k.target = t
	k.mu.Unlock()
	return t
}

func (t *target) Advertise(regions ...transport.Region) (transport.Advertisement, error) {
	list := make([]transport.RemoteRegion, len(regions))
	for i, r := range regions {
		if _, err := t.use(r.ID, 0); err != nil {
			return nil, fmt.Errorf("advertise: %w", err)
		}
		list[i] = transport.RemoteRegion(r)
	}
	return json.Marshal(list)
}

func (t *target) Notifications(ctx context.Context, notices []transport.Notice) (int, error) {
	if t.faults[IgnoreContext] {
		ctx = context.WithoutCancel(ctx)
	}
	if len(notices) == 0 {
		return 0, nil
	}
	select {
	case notices[0] = <-t.notices:
		return 1, nil
	default:
	}
	dead := t.done
	if t.err(&t.side) == nil && t.faults[IgnoreDeath] {
		dead = nil
	}
	select {
	case notices[0] = <-t.notices:
		return 1, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-dead:
		return 0, t.err(&t.side)
	}
}

func (t *target) Close() error {
	t.close(&t.side)
	t.copying.Lock() // waits for a copy in progress
	defer t.copying.Unlock()
	return nil
}
