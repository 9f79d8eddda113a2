//go:build !linux

package tcp

import (
	"io"
	"net"
	"time"
)

const maxBuffers = 1024

// vector is a scatter or gather list and the progress of its transfer.
type vector struct {
	stream  *stream
	buffers [maxBuffers][]byte
	count   int
	left    int64
}

func (v *vector) init(s *stream, _ bool) error {
	v.stream = s
	return nil
}

func (v *vector) waitBusy(bool) {}

func (v *vector) reset() { v.count, v.left = 0, 0 }

func (v *vector) full() bool { return v.count == maxBuffers }

func (v *vector) add(b []byte) {
	if len(b) == 0 {
		return
	}
	v.buffers[v.count] = b
	v.count++
	v.left += int64(len(b))
}

// setFirst replaces the first buffer, which was added before its length was known.
func (v *vector) setFirst(b []byte) {
	v.left += int64(len(b) - len(v.buffers[0]))
	v.buffers[0] = b
}

func (v *vector) writeAll() error {
	buffers := net.Buffers(v.buffers[:v.count])
	n, err := buffers.WriteTo(v.stream.conn)
	v.moved(n)
	return err
}

func (v *vector) readAll() error {
	for _, b := range v.buffers[:v.count] {
		for len(b) > 0 {
			n, err := v.stream.conn.Read(b)
			v.moved(int64(n))
			b = b[n:]
			if err == io.EOF {
				return io.ErrUnexpectedEOF
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (v *vector) moved(n int64) {
	v.left -= n
	v.stream.progress.Add(n)
}

// setUserTimeout does nothing here. Only the initiator's watchdog detects a dead peer.
func setUserTimeout(*net.TCPConn, time.Duration) error { return nil }
