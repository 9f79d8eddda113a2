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
	lost bool       // more than maxCame did
}

// read reads a frame into buf, and the file descriptor that it promises; the caller
// closes that. What comes unasked is closed here.
func (i *inbox) read(buf *[frameSize]byte) (f frame, came *os.File, err error) {
	i.lost = false
	if err = i.fill(buf[:]); err == nil {
		f, err = parseFrame(buf)
	}
	if err == nil && (len(i.came) != f.descriptors() || i.lost) {
		err = fmt.Errorf("frame of type %d with %s, where it should have %d: %w", f.typ, i.count(), f.descriptors(), transport.ErrProtocol)
	}
	if err != nil {
		return f, nil, errors.Join(err, i.closeCame())
	}
	if len(i.came) == 1 {
		came, i.came = i.came[0], i.came[:0]
	}
	return f, came, nil
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

// count says how many file descriptors came.
func (i *inbox) count() string {
	if i.lost {
		return fmt.Sprintf("more than %d file descriptors", len(i.came))
	}
	return fmt.Sprintf("%d file descriptors", len(i.came))
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
