package control

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"
)

// beat is the interval between the signs of life that each side sends. silence is how
// long the other side waits for one. silence allows for several late beats, because hosts
// under measurement are busy.
const (
	beat    = 4 * time.Second
	silence = 20 * time.Second
)

// lastLook is the time to read data that has already arrived.
const lastLook = 10 * time.Millisecond

const kindAlive = "alive"

// KeepAlive sends the peer signs of life until the channel is closed. From then on,
// Receive and Lost return ErrSilent if the peer sends none: a stopped process, or a host
// that vanished, closes nothing. Both sides call KeepAlive at the same point of the
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
				// Half a message may have been sent, so the Receive of both sides must
				// fail.
				if c.Send(kindAlive, nil) != nil {
					c.Close()
					return
				}
			}
		}
	}()
}

// reading reads the channel under the deadlines of its Conn. Each read gets a new
// deadline, so that a long frame on a slow network is not taken for silence.
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
	if r.woken.Load() { // after setting the deadline, which may have undone Lost's
		r.net.SetReadDeadline(time.Now())
	}
	n, err := r.net.Read(b)
	if silence > 0 && isTimeout(err) && !r.woken.Load() {
		// Perhaps this process stood still: data that came meanwhile counts.
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

// Lost waits until the peer closes the channel (it returns ErrClosed), falls silent
// (ErrSilent), sends more than a sign of life (nil), or the context ends (nil). It must
// not run beside Receive or Expect.
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

// skipAlive discards signs of life and returns when another message begins.
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

// maxAlive is more than the bytes of a frame with a sign of life.
const maxAlive = 64
