package control

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"
)

// beat is how often each side says that it is there; silence is how long the other
// waits for that. Several beats may be late: hosts under measurement are busy ones.
const (
	beat    = 4 * time.Second
	silence = 20 * time.Second
)

// lastLook is for what has arrived already.
const lastLook = 10 * time.Millisecond

const kindAlive = "alive"

// KeepAlive has this side tell the peer that it is there until the channel is closed,
// and Receive and Lost return ErrSilent where the peer does not: a stopped process, or a
// host that vanished, closes nothing. Both sides call it, at the same point of the
// protocol.
func (c *Conn) KeepAlive() { c.keepAlive(beat, silence) }

func (c *Conn) keepAlive(beat, silence time.Duration) {
	c.silence.Store(int64(silence))
	go func() {
		tick := time.NewTicker(beat)
		defer tick.Stop()
		for {
			select {
			case <-c.closed:
				return
			case <-tick.C:
				// Half a message may have gone: whoever receives is to hear of it.
				if c.Send(kindAlive, nil) != nil {
					c.Close()
					return
				}
			}
		}
	}()
}

// reading is the channel as it is read, with the deadlines of its Conn. It allots each
// read its own, so that a long frame on a slow network is not silence.
type reading struct{ *Conn }

// Read implements io.Reader.
func (r reading) Read(b []byte) (int, error) {
	until, silence := r.until, time.Duration(r.silence.Load())
	if end := time.Now().Add(silence); silence > 0 && (until.IsZero() || end.Before(until)) {
		until = end
	} else {
		silence = 0
	}
	if !until.IsZero() {
		if err := r.net.SetReadDeadline(until); err != nil {
			return 0, err
		}
	}
	if r.woken.Load() { // after the deadline was set, which may have undone Lost's
		r.net.SetReadDeadline(time.Now())
	}
	n, err := r.net.Read(b)
	if silence > 0 && isTimeout(err) && !r.woken.Load() {
		// It may be this process that stood still: what came meanwhile counts.
		r.net.SetReadDeadline(time.Now().Add(lastLook))
		n, err = r.net.Read(b)
	}
	if silence > 0 && isTimeout(err) && !r.woken.Load() {
		err = fmt.Errorf("%w for %v", ErrSilent, silence)
	}
	return n, err
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// Lost waits until the peer has closed the channel, and returns ErrClosed, or has
// fallen silent, and returns ErrSilent; or until it says something else than that it is
// there, or the context ends, and returns nil. It is for a time in which nobody
// receives: it must not run beside Receive or Expect.
func (c *Conn) Lost(ctx context.Context) error {
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		c.woken.Store(true)
		c.net.SetReadDeadline(time.Now())
	})
	err := c.skipAlive()
	if !stop() {
		<-done
		c.woken.Store(false)
		c.net.SetReadDeadline(time.Time{})
		return nil
	}
	if err != nil {
		return readError(err)
	}
	return nil
}

// skipAlive waits for the beginning of a message that says more than that the peer is
// there.
func (c *Conn) skipAlive() error {
	for {
		head, err := c.in.Peek(4)
		if err != nil {
			return err
		}
		n := binary.BigEndian.Uint32(head)
		if n > maxAlive {
			return nil
		}
		frame, err := c.in.Peek(4 + int(n))
		if err != nil {
			return err
		}
		if m, err := decodeFrame(frame[4:]); err != nil || m.Kind != kindAlive {
			return nil
		}
		if _, err := c.in.Discard(len(frame)); err != nil {
			return err
		}
	}
}

// maxAlive is more bytes than a frame has that says that the peer is there.
const maxAlive = 64
