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
	shares  atomic.Pointer[sharing] // how the first region is
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

// Deregister implements transport.Endpoint. It returns once the initiator has
// closed what it opened of the region, so that its memory may be freed; where the
// initiator does not answer within PeerTimeout the error wraps ErrBusy and the
// region stays.
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

// takeBack has the initiator close a region, and waits.
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

// serve reads frames.
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

// deliver tells the application of a transfer, and then the initiator that it
// did. A full queue of notices holds back the acknowledgement, and so the initiator.
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

// letGo ends the connection: it tells the initiator, and waits until that has
// closed what it opened, which the end of its side of the socket says.
func (t *target) letGo() error {
	defer t.net.Close()
	if err := t.net.CloseWrite(); err != nil {
		return nil // the initiator's end of the socket is gone, and with it what it held
	}
	if err := t.net.SetReadDeadline(time.Now().Add(t.cfg.PeerTimeout)); err != nil {
		return err
	}
	var buf [frameSize]byte
	for {
		_, err := t.net.Read(buf[:])
		switch {
		case err == nil: // said before it knew
		case errors.Is(err, os.ErrDeadlineExceeded):
			return fmt.Errorf("close: %w: the peer has not let go of this side's memory within %v", transport.ErrBusy, t.cfg.PeerTimeout)
		default:
			return nil
		}
	}
}
