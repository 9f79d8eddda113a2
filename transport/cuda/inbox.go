package cuda

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"kvbench/transport"
)

// maxCame is the most file descriptors accepted with a frame. It is larger than any
// frame needs, so that the error can report the number. The kernel closes the rest.
const maxCame = 4

// inbox reads frames and the file descriptors beside them. Only one goroutine may use
// it at a time.
type inbox struct {
	from *net.UnixConn
	receiver
	came []*os.File // file descriptors of the frame being read
	lost bool       // the kernel dropped some: over maxCame, or over this process's limit of open files
}

// read reads a frame into buf, and the file descriptor that it announces, which the
// caller must close. It closes any unexpected file descriptor.
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

// check returns an error if the number of file descriptors does not fit the frame.
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

// fill reads until b is full. Its errors wrap ErrPeer.
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

// closeCame closes the file descriptors of a refused frame.
func (i *inbox) closeCame() error {
	var errs []error
	for _, file := range i.came {
		errs = append(errs, file.Close())
	}
	i.came = i.came[:0]
	return errors.Join(errs...)
}
