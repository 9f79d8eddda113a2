package remote

import (
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"kvbench/transport"
)

// Request is one call: the receiver, as the number that the child gave it, and the
// arguments.
type Request struct {
	Object   uint64
	Deadline time.Duration // from now; 0 means none

	Config   transport.Config
	Address  transport.Address
	Memory   transport.Memory
	Region   transport.Region
	Regions  []transport.Region
	Ad       transport.Advertisement
	Transfer transport.Transfer
	Count    int // number of completions, notices or bytes to return
	Offset   int64
	Bytes    []byte
}

// Response holds the results of a call.
type Response struct {
	Failure *Failure

	Object       uint64
	Name         string
	Capabilities transport.Capabilities
	Epoch        int64 // see epoch
	Address      transport.Address
	Memory       transport.Memory
	Region       transport.Region
	Remote       []transport.RemoteRegion
	Ad           transport.Advertisement
	Completions  []transport.Completion
	Failures     []Failure // errors of the completions; without text if they succeeded
	Notices      []transport.Notice
	Path         []byte // JSON
	Bytes        []byte
}

// sentinels lists the errors that errors.Is still finds in a Failure.
var sentinels = []error{
	transport.ErrUnavailable, transport.ErrUnsupported, transport.ErrClosed, transport.ErrPeer, transport.ErrDevice, transport.ErrLocal, transport.ErrProtocol,
	transport.ErrQueueFull, transport.ErrRegion, transport.ErrBounds, transport.ErrBusy,
	context.DeadlineExceeded, context.Canceled, io.EOF,
}

// Failure is an error of the other process.
type Failure struct {
	Text  string
	Kinds []int // indexes in sentinels
}

// failure returns err as a Failure; nil stays nil.
func failure(err error) *Failure {
	if err == nil {
		return nil
	}
	f := &Failure{Text: err.Error()}
	for i, s := range sentinels {
		if errors.Is(err, s) {
			f.Kinds = append(f.Kinds, i)
		}
	}
	return f
}

func (f *Failure) Error() string { return f.Text }

// Is reports whether the error wrapped target in its process.
func (f *Failure) Is(target error) bool {
	i := slices.Index(sentinels, target)
	return i >= 0 && slices.Contains(f.Kinds, i)
}

// err returns f as an error; nil stays nil.
func (f *Failure) err() error {
	if f == nil {
		return nil
	}
	return f
}

// epoch returns the system's monotonic clock, in nanoseconds, when this process's
// transport.Now was 0. It reads both clocks several times and uses the shortest
// reading. The error is less than half of that reading's duration, which is below a
// microsecond.
func epoch() (at int64, err error) {
	best := time.Duration(math.MaxInt64)
	for range 100 {
		var t unix.Timespec
		before := transport.Now()
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
			return 0, err
		}
		if took := transport.Now() - before; took < best {
			best, at = took, t.Nano()-int64(before+took/2)
		}
	}
	return at, nil
}
