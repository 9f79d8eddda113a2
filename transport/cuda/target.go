package cuda

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"kvbench/internal/cudadrv"
	"kvbench/internal/gpumem"
	"kvbench/transport"
)

// target implements transport.Target.
type target struct {
	*connection
	notices chan transport.Notice
	peer    atomic.Pointer[cudadrv.UUID] // the initiator's device
	device  atomic.Pointer[cudadrv.Device]
	shares  atomic.Pointer[sharing] // how the first region is shared
}

func newTarget(l link) *target {
	t := &target{connection: newConnection(l), notices: make(chan transport.Notice, l.cfg.MaxOutstanding)}
	t.run(t.serve)
	t.supervise(t.letGo, func() {})
	return t
}

// Register implements transport.Endpoint. It exports the allocation.
func (t *target) Register(m transport.Memory) (transport.Region, error) {
	if err := t.Err(); err != nil {
		return transport.Region{}, err
	}
	if err := checkMemory(m); err != nil {
		return transport.Region{}, err
	}
	c, err := t.driver.Context(m.Device)
	if err != nil {
		return transport.Region{}, err
	}
	if err := gpumem.CheckRange(c, m); err != nil {
		return transport.Region{}, err
	}
	x, err := t.export(c, m)
	if err != nil {
		return transport.Region{}, err
	}
	t.device.CompareAndSwap(nil, &c.Device)
	kind := kindOf(x)
	t.shares.CompareAndSwap(nil, &kind)
	r := t.regions.add(c, m, x)
	return transport.Region{ID: r.id, Size: r.size}, nil
}

// Advertise implements transport.Target.
func (t *target) Advertise(regions ...transport.Region) (transport.Advertisement, error) {
	all := make([]advertised, len(regions))
	for i, want := range regions {
		r := t.regions.advertise(want.ID)
		if r == nil {
			return nil, fmt.Errorf("advertise region %d: %w", want.ID, transport.ErrRegion)
		}
		all[i] = advertised{
			ID: r.id, Size: r.size, Device: r.context.Device.UUID.Bytes[:], MIG: r.context.Device.UUID.MIG, Sharing: kindOf(r.export),
			Handle: r.export.Handle[:], Offset: r.export.Offset, Allocation: r.export.Size,
		}
	}
	return mustMarshal(all), nil
}

// Deregister implements transport.Endpoint. It returns after the initiator has closed
// its mapping of the region, so that the memory may be freed. If the initiator does not
// answer within PeerTimeout, the error wraps ErrBusy and the region stays.
func (t *target) Deregister(reg transport.Region) error {
	r := t.regions.get(reg.ID)
	if r == nil {
		return fmt.Errorf("deregister region %d: %w", reg.ID, transport.ErrRegion)
	}
	if t.regions.known(r) {
		if err := t.takeBack(r); err != nil {
			return fmt.Errorf("deregister region %d: %w", reg.ID, err)
		}
	}
	t.regions.remove(reg.ID)
	return nil
}

// takeBack requests the initiator to close a region, and waits until it has.
func (t *target) takeBack(r *region) error {
	if r.withdraw() {
		if err := t.send(frame{typ: frameWithdraw, region: r.id}); err != nil {
			t.fail(err)
		}
	}
	select {
	case <-r.released:
		return nil
	case <-t.stopped:
		return t.closeErr
	case <-time.After(t.cfg.PeerTimeout):
		return fmt.Errorf("%w: the peer has not let go of it within %v", transport.ErrBusy, t.cfg.PeerTimeout)
	}
}

// Notifications implements transport.Target.
func (t *target) Notifications(ctx context.Context, notices []transport.Notice) (int, error) {
	return transport.TakeNotices(ctx, notices, t.notices, t.stopped, t.Err)
}

// serve reads and processes frames.
func (t *target) serve() error {
	var buf [frameSize]byte
	for {
		f, file, err := t.inbox.read(&buf)
		if file != nil {
			err = file.Close() // handle refuses the frame
		}
		if err == nil {
			err = t.handle(f)
		}
		if err != nil {
			return err
		}
	}
}

func (t *target) handle(f frame) error {
	switch f.typ {
	case frameDevice:
		t.peer.Store(&f.device)
		return nil
	case frameNotice:
		return t.deliver(f)
	case frameWant:
		return t.giveDescriptor(f.region)
	case frameClosed:
		r := t.regions.get(f.region)
		if r == nil || !r.confirm() {
			return fmt.Errorf("peer closed region %d, which was not withdrawn: %w", f.region, transport.ErrProtocol)
		}
		return nil
	}
	return fmt.Errorf("frame type %d sent to a target: %w", f.typ, transport.ErrProtocol)
}

// deliver queues a notice for the application and then acknowledges a WRITE to the
// initiator. A full queue of notices delays the acknowledgement and so slows the
// initiator.
func (t *target) deliver(f frame) error {
	if r := t.regions.get(f.region); r == nil {
		return fmt.Errorf("notice of a transfer with region %d: %w: %w", f.region, transport.ErrRegion, transport.ErrProtocol)
	}
	select {
	case t.notices <- transport.Notice{ID: f.id, Op: f.op, Bytes: int64(f.bytes), At: transport.Now()}:
	case <-t.closing:
		return t.Err()
	}
	if f.op == transport.Read {
		return nil
	}
	return t.send(frame{typ: frameAck, id: f.id, region: f.region, slot: f.slot})
}

// letGo ends the connection: it closes the sending half of the socket, and waits until
// the initiator closes its end. By then the initiator has closed the memory that it
// opened.
func (t *target) letGo() error {
	defer t.net.Close()
	if err := t.net.CloseWrite(); err != nil {
		return nil // the initiator's process is gone, and its mappings with it
	}
	if err := t.net.SetReadDeadline(time.Now().Add(t.cfg.PeerTimeout)); err != nil {
		return err
	}
	var buf [frameSize]byte
	for {
		_, err := t.net.Read(buf[:])
		switch {
		case err == nil: // sent before the initiator saw the end
		case errors.Is(err, os.ErrDeadlineExceeded):
			return fmt.Errorf("close: %w: the peer has not let go of this side's memory within %v", transport.ErrBusy, t.cfg.PeerTimeout)
		default:
			return nil
		}
	}
}
