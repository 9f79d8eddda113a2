package cudadrv

import (
	"fmt"
	"time"
	"unsafe"
)

// blockingSync makes a wait for the event sleep instead of spin (CU_EVENT_BLOCKING_SYNC).
const blockingSync = 1

// Event is a mark in a stream, with the time when the device reached it. Only one goroutine
// at a time may use it, inside Context.Do.
type Event struct {
	caller
	handle  uintptr
	elapsed *float32 // the driver's output; kept so that Since allocates nothing
}

// NewEvent makes an event.
func (c *Context) NewEvent() (*Event, error) {
	e := &Event{caller: caller{driver: c.driver}, elapsed: new(float32)}
	if err := c.driver.call(symEventCreate, uintptr(unsafe.Pointer(&e.handle)), blockingSync); err != nil {
		return nil, fmt.Errorf("make an event on CUDA device %d: %w", c.Device.Ordinal, err)
	}
	return e, nil
}

// Record adds the event to a stream.
func (e *Event) Record(s *Stream) error { return e.call(symEventRecord, e.handle, s.handle) }

// Done reports whether the device has reached the last recorded place of the event. It may
// return an error of any work before it.
func (e *Event) Done() (bool, error) {
	r, err := e.result(symEventQuery, e.handle)
	if err != nil || r == notReady {
		return false, err
	}
	return true, e.driver.check(symEventQuery, r)
}

// Wait sleeps until the device has reached the event.
func (e *Event) Wait() error { return e.call(symEventSynchronize, e.handle) }

// Await is Wait preceded by polling for the time spin, which detects the end sooner but
// keeps a core busy.
func (e *Event) Await(spin time.Duration) error {
	for start := time.Now(); time.Since(start) < spin; {
		done, err := e.Done()
		if err != nil {
			return err
		}
		if done {
			break
		}
	}
	return e.Wait()
}

// Since is the device's time from an earlier event of the same stream to e; both
// must be done. Its resolution is about half a microsecond (CUDA driver API,
// cuEventElapsedTime).
func (e *Event) Since(earlier *Event) (time.Duration, error) {
	err := e.call(symEventElapsedTime, uintptr(unsafe.Pointer(e.elapsed)), earlier.handle, e.handle)
	return time.Duration(float64(*e.elapsed) * float64(time.Millisecond)), err
}

// Close destroys the event.
func (e *Event) Close() error { return e.call(symEventDestroy, e.handle) }
