package cuda

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"kvbench/transport"
)

// maxCame is how many file descriptors are taken in with a frame: more than any has, so
// that it can be said what was wrong. The kernel closes what comes beyond them.
const maxCame = 4

// inbox reads frames with the file descriptors that come beside them. One goroutine at a
// time uses it.
type inbox struct {
	from *net.UnixConn
	receiver
	came []*os.File // with the frame that is being read
	lost bool       // more did: over maxCame, or over what this process may have open
}

// read reads a frame into buf, and the file descriptor that it promises; the caller
// closes that. What comes unasked is closed here.
func (i *inbox) read(buf *[frameSize]byte) (f frame, came *os.File, err error) {
	i.lost = false
	if err = i.fill(buf[:]); err == nil {
		f, err = parseFrame(buf)
	}
	if err == nil {
		err = i.check(f)
	}
	if err != nil {
		return f, nil, errors.Join(err, i.closeCame())
	}
	if len(i.came) == 1 {
		came, i.came = i.came[0], i.came[:0]
	}
	return f, came, nil
}

// check says what is wrong with the number of descriptors that came with a frame, or nil.
func (i *inbox) check(f frame) error {
	n, want := len(i.came), f.descriptors()
	switch {
	case i.lost && n < want:
		return transport.Classify(errors.New("take in the peer's file descriptor: this process has as many files open as it may: raise the limit (ulimit -n)"), transport.ErrLocal)
	case i.lost:
		return fmt.Errorf("frame of type %d with more than %d file descriptors, where it should have %d: %w", f.typ, n, want, transport.ErrProtocol)
	case n != want:
		return fmt.Errorf("frame of type %d with %d file descriptors, where it should have %d: %w", f.typ, n, want, transport.ErrProtocol)
	}
	return nil
}

// fill reads until b is full. Its errors are the peer's.
func (i *inbox) fill(b []byte) error {
	for off := 0; off < len(b); {
		n, err := i.receive(b[off:])
		if err == nil && n == 0 {
			err = io.EOF
		}
		if err != nil {
			return peerError(err)
		}
		off += n
	}
	return nil
}

// closeCame closes what came unasked.
func (i *inbox) closeCame() error {
	var errs []error
	for _, file := range i.came {
		errs = append(errs, file.Close())
	}
	i.came = i.came[:0]
	return errors.Join(errs...)
}
