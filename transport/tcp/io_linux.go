package tcp

import (
	"io"
	"net"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	maxBuffers = 1024 // IOV_MAX

	// A stream that moves much data between two empty (or full) sockets is limited by
	// the copies, not by the wire. Then a short spin catches the next chunk sooner than
	// the scheduler would. On a slow link it would only burn CPU time.
	spinBurst = 128 << 10
	maxSpins  = 256
)

// vector is a scatter or gather list and the progress of its transfer. Its arrays are
// fields, so that moving a list allocates nothing.
type vector struct {
	stream *stream
	raw    syscall.RawConn
	busy   bool    // as configured
	spin   bool    // never sleep: busy is set, and spinning is worth it now
	call   uintptr // SYS_READV or SYS_WRITEV

	buffers [maxBuffers]unix.Iovec
	first   int
	count   int
	left    int64
	burst   int64 // bytes moved since the socket last made the goroutine sleep
	err     error
	attempt func(fd uintptr) bool // bound once: a closure per call would allocate
}

func (v *vector) init(s *stream, busy bool) error {
	raw, err := s.conn.SyscallConn()
	if err != nil {
		return err
	}
	v.stream, v.raw, v.busy, v.spin = s, raw, busy, busy
	v.attempt = v.move
	return nil
}

// waitBusy sets whether a busy stream spins for the next bytes.
func (v *vector) waitBusy(worthIt bool) { v.spin = v.busy && worthIt }

func (v *vector) reset() { v.first, v.count, v.left = 0, 0, 0 }

// full reports whether no buffer can be added.
func (v *vector) full() bool { return v.count == maxBuffers }

// add appends a buffer. The caller must not add more than maxBuffers.
func (v *vector) add(b []byte) {
	if len(b) == 0 {
		return
	}
	v.buffers[v.count].Base = unsafe.SliceData(b)
	v.buffers[v.count].SetLen(len(b))
	v.count++
	v.left += int64(len(b))
}

// setFirst replaces the first buffer, which was added before its length was known.
func (v *vector) setFirst(b []byte) {
	v.left += int64(len(b)) - int64(v.buffers[0].Len)
	v.buffers[0].Base = unsafe.SliceData(b)
	v.buffers[0].SetLen(len(b))
}

func (v *vector) writeAll() error {
	v.call, v.err = unix.SYS_WRITEV, nil
	for v.left > 0 && v.err == nil {
		if err := v.raw.Write(v.attempt); err != nil {
			return err
		}
	}
	return v.err
}

func (v *vector) readAll() error {
	v.call, v.err = unix.SYS_READV, nil
	for v.left > 0 && v.err == nil {
		if err := v.raw.Read(v.attempt); err != nil {
			return err
		}
	}
	return v.err
}

// move transfers until nothing is left (true), or until the socket would block and
// sleeping is better than spinning (false).
func (v *vector) move(fd uintptr) bool {
	spins := 0
	for v.left > 0 {
		n, _, errno := unix.Syscall(v.call, fd, uintptr(unsafe.Pointer(&v.buffers[v.first])), uintptr(v.count-v.first))
		switch errno {
		case 0:
			if n == 0 {
				v.err = io.ErrUnexpectedEOF
				return true
			}
			v.advance(int64(n))
			spins = 0
		case unix.EINTR:
		case unix.EAGAIN:
			if v.stream.closed.Load() {
				v.err = net.ErrClosed
				return true
			}
			if !v.spin && (v.burst < spinBurst || spins >= maxSpins) {
				v.burst = 0
				return false
			}
			if spins++; spins%16 == 0 {
				runtime.Gosched()
			}
		default:
			v.err = errno
			return true
		}
	}
	return true
}

// advance drops n moved bytes from the front of the list.
func (v *vector) advance(n int64) {
	v.left -= n
	v.burst += n
	v.stream.progress.Add(n)
	for n > 0 {
		b := &v.buffers[v.first]
		if n < int64(b.Len) {
			b.Base = (*byte)(unsafe.Add(unsafe.Pointer(b.Base), n))
			b.SetLen(int(int64(b.Len) - n))
			return
		}
		n -= int64(b.Len)
		v.first++
	}
}

// setUserTimeout limits how long sent data may stay unacknowledged.
func setUserTimeout(conn *net.TCPConn, d time.Duration) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var errOption error
	err = raw.Control(func(fd uintptr) {
		errOption = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
	})
	if err != nil {
		return err
	}
	return errOption
}
