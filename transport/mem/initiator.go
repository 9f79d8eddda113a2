package mem

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"kvbench/transport"
)

// initiator implements transport.Initiator. One goroutine does its copies in the order
// of the posts.
type initiator struct {
	side
	remote      map[uint32]int64
	outstanding int // used by Post and Poll only
	posted      chan transport.Transfer
	completed   chan transport.Completion
	held        *transport.Completion
	closing     chan struct{} // closed by Close
	closeOnce   sync.Once
	stopped     chan struct{}  // closed when the copying goroutine has ended
	seen        map[int64]bool // remote offsets written before, for Stale
}

func newInitiator(k *link) *initiator {
	in := &initiator{
		side:      newSide(k),
		remote:    make(map[uint32]int64),
		posted:    make(chan transport.Transfer, k.cfg.MaxOutstanding),
		completed: make(chan transport.Completion, 3*k.cfg.MaxOutstanding),
		closing:   make(chan struct{}),
		stopped:   make(chan struct{}),
		seen:      make(map[int64]bool),
	}
	go in.copyAll()
	return in
}

func (in *initiator) Import(ad transport.Advertisement) ([]transport.RemoteRegion, error) {
	var regions []transport.RemoteRegion
	if err := json.Unmarshal(ad, &regions); err != nil {
		return nil, fmt.Errorf("read advertisement: %w: %w", transport.ErrProtocol, err)
	}
	for _, r := range regions {
		in.remote[r.ID] = r.Size
	}
	return regions, nil
}

func (in *initiator) Post(t transport.Transfer) error {
	if err := in.err(&in.side); err != nil {
		return err
	}
	if t.Op != transport.Write && t.Op != transport.Read {
		return fmt.Errorf("post %v: %w", t.Op, transport.ErrUnsupported)
	}
	if in.outstanding == in.cfg.MaxOutstanding {
		return transport.ErrQueueFull
	}
	size, ok := in.remote[t.Remote.ID]
	if !ok {
		return fmt.Errorf("post to remote region %d: %w", t.Remote.ID, transport.ErrRegion)
	}
	mem, err := in.use(t.Local.ID, 0)
	if err != nil {
		return fmt.Errorf("post: %w", err)
	}
	if len(t.Descriptors) > in.cfg.MaxDescriptors {
		return fmt.Errorf("post %d descriptors: %w", len(t.Descriptors), transport.ErrBounds)
	}
	if _, err := transport.CheckDescriptors(t.Descriptors, int64(len(mem)), size); err != nil && !in.faults[Unbounded] {
		return fmt.Errorf("post: %w", err)
	}
	if _, err := in.use(t.Local.ID, 1); err != nil {
		return fmt.Errorf("post: %w", err)
	}
	in.outstanding++
	in.posted <- t // has room: at most MaxOutstanding are outstanding
	return nil
}

func (in *initiator) Poll(done []transport.Completion) (int, error) {
	n := 0
	for n < len(done) {
		var c transport.Completion
		if in.held != nil {
			c, in.held = *in.held, nil
		} else {
			select {
			case c = <-in.completed:
			default:
				if n > 0 {
					return n, nil
				}
				select {
				case <-in.stopped:
					if len(in.completed) == 0 {
						return 0, in.err(&in.side)
					}
					continue
				default:
					return 0, nil
				}
			}
		}
		if c.Stage == transport.Delivered && in.outstanding > 0 {
			in.outstanding--
		}
		done[n] = c
		n++
	}
	return n, nil
}

func (in *initiator) Wait(ctx context.Context) error {
	if in.held != nil {
		return nil
	}
	if in.faults[IgnoreContext] {
		ctx = context.WithoutCancel(ctx)
	}
	select {
	case c := <-in.completed:
		in.held = &c
	case <-in.stopped:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

func (in *initiator) Close() error {
	in.close(&in.side)
	in.closeOnce.Do(func() { close(in.closing) })
	<-in.stopped
	return nil
}

// copyAll is the initiator's goroutine.
func (in *initiator) copyAll() {
	defer close(in.stopped)
	dead := in.done
	for {
		select {
		case t := <-in.posted:
			if err := in.err(&in.side); err != nil {
				in.finish(t, err)
				continue
			}
			if err := in.move(t); err != errCompleted {
				in.finish(t, err)
			}
		case <-dead:
			if in.err(&in.side) == nil && dead != in.closing {
				dead = in.closing // IgnoreDeath: as if nothing had happened, until this side ends
				continue
			}
			in.failPosted()
			return
		}
	}
}

func (in *initiator) failPosted() {
	for {
		select {
		case t := <-in.posted:
			in.finish(t, in.err(&in.side))
		default:
			return
		}
	}
}

// finish completes a transfer.
func (in *initiator) finish(t transport.Transfer, err error) {
	if in.faults[Lose] || (err != nil && in.faults[AbandonOnExit]) {
		return
	}
	now := transport.Now()
	c := transport.Completion{ID: t.ID, Stage: transport.Delivered, Bytes: total(t), Local: now, Delivered: now, Err: err}
	if _, errUse := in.use(t.Local.ID, -1); errUse != nil && err == nil {
		c.Err = errUse
	}
	in.completed <- c
	if in.faults[Repeat] {
		in.completed <- c
	}
}

func total(t transport.Transfer) (n int64) {
	for _, d := range t.Descriptors {
		n += d.Length
	}
	return n
}

// move copies a transfer's bytes and notifies the target.
func (in *initiator) move(t transport.Transfer) error {
	in.link.mu.Lock()
	peer := in.link.target
	in.link.mu.Unlock()
	if peer == nil {
		return fmt.Errorf("%w: not yet accepted", transport.ErrPeer)
	}
	local, err := in.use(t.Local.ID, 0)
	if err != nil {
		return err
	}
	remote, err := peer.use(t.Remote.ID, 1)
	if err != nil {
		return fmt.Errorf("%w: %w", transport.ErrPeer, err)
	}
	defer peer.use(t.Remote.ID, -1)
	early := in.faults[Early] && total(t) > 0
	if early {
		in.finish(t, nil)
		time.Sleep(20 * time.Millisecond)
	}
	if t.ReportLocal && in.faults[LateSource] {
		in.completed <- transport.Completion{ID: t.ID, Stage: transport.LocallyComplete, Bytes: total(t), Local: transport.Now()}
		time.Sleep(20 * time.Millisecond)
	}
	if err := in.whileOpen(&in.side, func() { in.copyBytes(t, local, remote) }); err != nil {
		return err
	}
	if t.Op == transport.Write && t.ReportLocal && !in.faults[LateSource] {
		in.completed <- transport.Completion{ID: t.ID, Stage: transport.LocallyComplete, Bytes: total(t), Local: transport.Now()}
	}
	if !in.faults[Mute] {
		select {
		case peer.notices <- transport.Notice{ID: t.ID, Op: t.Op, Bytes: total(t), At: transport.Now()}:
		case <-in.done:
			return in.err(&in.side)
		}
	}
	if early {
		return errCompleted
	}
	return nil
}

// errCompleted is returned by move if the transfer was completed early.
var errCompleted = errors.New("completed early")

// copyBytes performs the transfer's copies, altered by the faults.
func (in *initiator) copyBytes(t transport.Transfer, local, remote []byte) {
	if in.faults[Stale] && len(t.Descriptors) > 0 {
		place := t.Descriptors[0].Remote
		if in.seen[place] {
			return
		}
		in.seen[place] = true
	}
	descs := t.Descriptors
	for i, d := range descs {
		from := d
		if in.faults[Swap] && i < 2 && len(descs) > 1 && descs[0].Length == descs[1].Length {
			from = descs[1-i]
		}
		dst, src := remote[clamp(d.Remote, remote):], local[clamp(from.Local, local):]
		if t.Op == transport.Read {
			dst, src = local[clamp(d.Local, local):], remote[clamp(from.Remote, remote):]
		}
		n := int(min(max(d.Length, 0), int64(len(src)), int64(len(dst))))
		if in.faults[Drop] && i == len(descs)-1 {
			n = 0
		}
		if in.faults[Truncate] && i == len(descs)-1 && n > 0 {
			n--
		}
		copy(dst[:n], src[:n])
		if in.faults[Corrupt] && n > 0 {
			dst[n/2] ^= 1
		}
		if in.faults[Overrun] && n < len(dst) && n > 0 {
			dst[n] ^= 1
		}
	}
}

// clamp makes an unchecked offset safe to slice with.
func clamp(offset int64, b []byte) int64 { return min(max(offset, 0), int64(len(b))) }
