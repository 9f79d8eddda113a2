package cudadrv

import (
	"fmt"
	"runtime"
	"sync"
	"unsafe"
)

// Context is the primary context of a device, shared by all CUDA code of a process. It
// lives as long as the process, because creating a context takes longer than any use of it
// here.
type Context struct {
	Device Device

	driver *Driver
	handle uintptr

	mu      sync.Mutex // serializes the copies of buffers
	copying *Stream    // for these copies; made at the first

	sharing   sync.Mutex
	shareable map[DevicePointer]*Buffer // of AllocShareable, by address
}

// Context returns a device's context.
func (d *Driver) Context(ordinal int) (*Context, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c := d.contexts[ordinal]; c != nil {
		return c, nil
	}
	dev, err := d.Device(ordinal)
	if err != nil {
		return nil, err
	}
	c := &Context{Device: dev, driver: d}
	if err := d.call(symDevicePrimaryCtxRetain, uintptr(unsafe.Pointer(&c.handle)), uintptr(dev.handle)); err != nil {
		return nil, fmt.Errorf("start a context on CUDA device %d (%s): %w", ordinal, dev.Name, err)
	}
	d.contexts[ordinal] = c
	return c, nil
}

// Driver returns the driver that the context belongs to.
func (c *Context) Driver() *Driver { return c.driver }

// Do runs f on an OS thread that is bound to the context and reserved for f meanwhile.
func (c *Context) Do(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := c.driver.call(symCtxSetCurrent, c.handle); err != nil {
		return err
	}
	return f()
}

// Binder is Context.Do for the path of a transfer: it allocates nothing, and only one
// goroutine at a time may use it.
type Binder struct {
	caller
	context *Context
}

// Binder makes a binder of the context.
func (c *Context) Binder() *Binder { return &Binder{caller{driver: c.driver}, c} }

// Do is Context.Do.
func (b *Binder) Do(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := b.call(symCtxSetCurrent, b.context.handle); err != nil {
		return err
	}
	return f()
}
