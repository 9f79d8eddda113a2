package transport

import (
	"errors"
	"fmt"
)

var (
	// ErrUnavailable is returned when a transport cannot be used on this host or in this build.
	ErrUnavailable = errors.New("transport not available")

	// ErrUnsupported is returned when a transport lacks a requested ability.
	ErrUnsupported = errors.New("not supported by this transport")

	// ErrClosed is returned when this side has already closed the connection.
	ErrClosed = errors.New("connection closed")

	// ErrPeer is returned when the peer has gone or has stopped answering.
	ErrPeer = errors.New("peer lost")

	// ErrDevice is returned when a device of this side, such as a GPU that copies, has failed.
	ErrDevice = errors.New("device failed")

	// ErrLocal is returned when this side ended the connection. Neither the peer's
	// messages nor the path to the peer are at fault.
	ErrLocal = errors.New("ended by this side")

	// ErrProtocol is returned when the peer violates the protocol.
	ErrProtocol = errors.New("protocol violation")

	// ErrQueueFull is returned when Config.MaxOutstanding transfers are outstanding.
	ErrQueueFull = errors.New("too many transfers outstanding")

	// ErrRegion is returned for a region that is not registered or not imported here.
	ErrRegion = errors.New("unknown region")

	// ErrBounds is returned when a descriptor does not lie inside its region.
	ErrBounds = errors.New("descriptor outside its region")

	// ErrBusy is returned when a region is still in use by a transfer.
	ErrBusy = errors.New("region in use")
)

// CheckDescriptors returns the sum of the descriptors' lengths if every descriptor lies
// inside a local region of localSize bytes and a remote region of remoteSize bytes.
// Otherwise it returns an error that wraps ErrBounds.
func CheckDescriptors(descs []Descriptor, localSize, remoteSize int64) (total int64, err error) {
	for i, d := range descs {
		if !inside(d.Local, d.Length, localSize) {
			return 0, fmt.Errorf("descriptor %d: %d bytes at local offset %d of a region of %d: %w", i, d.Length, d.Local, localSize, ErrBounds)
		}
		if !inside(d.Remote, d.Length, remoteSize) {
			return 0, fmt.Errorf("descriptor %d: %d bytes at remote offset %d of a region of %d: %w", i, d.Length, d.Remote, remoteSize, ErrBounds)
		}
		if total > maxTransfer-d.Length {
			return 0, fmt.Errorf("descriptor %d: transfer larger than %d bytes: %w", i, int64(maxTransfer), ErrBounds)
		}
		total += d.Length
	}
	return total, nil
}

const maxTransfer = 1 << 62

// inside reports whether length bytes at offset lie within size, without overflow.
func inside(offset, length, size int64) bool {
	return offset >= 0 && length >= 0 && offset <= size && length <= size-offset
}

// Classify returns an error with err's message that matches both err and as under
// errors.Is.
func Classify(err, as error) error { return classified{err, as} }

type classified struct {
	error
	as error
}

func (c classified) Unwrap() []error { return []error{c.error, c.as} }

// Ended returns why a connection ended, as an error for callers: why itself if it wraps
// ErrClosed, ErrDevice, ErrLocal or ErrPeer, otherwise an error that wraps ErrPeer and
// why.
func Ended(why error) error {
	for _, class := range []error{ErrClosed, ErrDevice, ErrLocal, ErrPeer} {
		if errors.Is(why, class) {
			return why
		}
	}
	return fmt.Errorf("%w: %w", ErrPeer, why)
}
