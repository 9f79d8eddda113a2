package cuda

import (
	"fmt"
	"os"
	"time"

	"kvbench/internal/gpumem"
	"kvbench/transport"
)

// listen reads the target's frames.
func (in *initiator) listen() error {
	var buf [frameSize]byte
	for {
		f, file, err := in.inbox.read(&buf)
		if err == nil {
			in.heard.Store(int64(transport.Now()))
			err = in.handle(f, file)
		}
		if err != nil {
			return err
		}
	}
}

// handle processes a frame. The file is nil, except for a descriptor frame.
func (in *initiator) handle(f frame, file *os.File) error {
	switch f.typ {
	case frameAck:
		return in.acknowledged(f)
	case frameWithdraw:
		// A region that is not imported yet must not be imported after this.
		r := in.remote.add(&remoteRegion{uses: newUses(), advertised: advertised{ID: f.region}})
		if !r.withdraw() {
			return fmt.Errorf("region %d withdrawn twice: %w", f.region, transport.ErrProtocol)
		}
		in.run(func() error { return in.closeRegion(r) })
		return nil
	case frameDescriptor:
		return in.takeDescriptor(f, file)
	}
	return fmt.Errorf("frame type %d sent to an initiator: %w", f.typ, transport.ErrProtocol)
}

// acknowledged ends a WRITE after the target's acknowledgement.
func (in *initiator) acknowledged(f frame) error {
	if int(f.slot) >= len(in.slots) {
		return fmt.Errorf("acknowledgement for slot %d of %d: %w", f.slot, len(in.slots), transport.ErrProtocol)
	}
	s := &in.slots[f.slot]
	if s.state.Load() != slotPosted || s.transfer.ID != f.id || s.noticeAt.Load() == 0 || s.transfer.Op != transport.Write {
		return fmt.Errorf("acknowledgement of transfer %d, of which slot %d gave no notice: %w", f.id, f.slot, transport.ErrProtocol)
	}
	in.complete(int(f.slot), transport.Completion{
		ID: s.transfer.ID, Stage: transport.Delivered, Bytes: s.bytes,
		Local: time.Duration(s.localAt.Load()), Delivered: transport.Now(),
	})
	return nil
}

// closeRegion closes a withdrawn region once no transfer uses it, and reports that to
// the target.
func (in *initiator) closeRegion(r *remoteRegion) error {
	select {
	case <-r.idle:
	case <-in.closing:
		return nil // letGo closes it
	}
	in.setting.Lock()
	err := r.unmap()
	in.setting.Unlock()
	if err != nil {
		return fmt.Errorf("%w: close the peer's GPU memory: %w", transport.ErrDevice, err)
	}
	return in.send(frame{typ: frameClosed, region: r.ID})
}

// watch fails the connection if the target owes an acknowledgement and sends no frame
// for the peer timeout. The time of the copies does not count.
func (in *initiator) watch() error {
	return gpumem.WatchPeer(in.closing, in.cfg.PeerTimeout, &in.heard, in.owed)
}

// owed reports whether a notice that left before a time has no answer.
func (in *initiator) owed(before time.Duration) bool {
	for i := range in.slots {
		s := &in.slots[i]
		at := time.Duration(s.noticeAt.Load())
		if s.state.Load() == slotPosted && at != 0 && at < before {
			return true
		}
	}
	return false
}
