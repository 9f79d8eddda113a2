package cudadrv

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"unsafe"
)

// DevicePointer is an address in device memory. Go must not dereference it.
type DevicePointer uint64

// Buffer is device memory. It implements io.ReaderAt and io.WriterAt; their copies have
// ended when they return. Its methods are safe for concurrent use, except Free.
type Buffer struct {
	Pointer DevicePointer
	Size    int64 // bytes

	context *Context
	shared  *shareable // nil: memory of cuMemAlloc
}

var (
	_ io.ReaderAt = (*Buffer)(nil)
	_ io.WriterAt = (*Buffer)(nil)
)

// exportBlock divides the size of memory shared by handles. A driver may place smaller
// allocations in one block, and a handle opens the whole block (CUDA Programming Guide,
// "Interprocess Communication").
const exportBlock = 2 << 20

// Alloc allocates size bytes of device memory with unspecified content. If there is too
// little, the error wraps OutOfMemory and includes the free and total bytes.
func (c *Context) Alloc(size int64) (*Buffer, error) { return c.alloc(size, size) }

// AllocExportable is Alloc for memory to Export. It takes whole blocks of 2 MiB, so that
// its handle opens no other memory.
func (c *Context) AllocExportable(size int64) (*Buffer, error) {
	return c.alloc(size, (size+exportBlock-1)/exportBlock*exportBlock)
}

// alloc allocates takes bytes for a buffer of size bytes.
func (c *Context) alloc(size, takes int64) (*Buffer, error) {
	b := &Buffer{Size: size, context: c}
	err := c.Do(func() error {
		err := c.driver.call(symMemAlloc, uintptr(unsafe.Pointer(&b.Pointer)), uintptr(takes))
		if errors.Is(err, OutOfMemory) {
			return c.shortOfMemory(size, err)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("allocate on CUDA device %d: %w", c.Device.Ordinal, err)
	}
	return b, nil
}

// shortOfMemory adds the device's free and total memory to an error.
func (c *Context) shortOfMemory(size int64, err error) error {
	var available, total uintptr
	if errInfo := c.driver.call(symMemGetInfo, uintptr(unsafe.Pointer(&available)), uintptr(unsafe.Pointer(&total))); errInfo != nil {
		return errors.Join(err, errInfo)
	}
	return fmt.Errorf("%d bytes, where %d of %d are free: %w; ask for less, or end what else uses the device (nvidia-smi shows it)",
		size, available, total, err)
}

// Free frees the memory. Every process that opened it must have closed it.
func (b *Buffer) Free() error {
	if b.shared != nil {
		return b.freeShareable()
	}
	return b.context.Do(func() error { return b.context.driver.call(symMemFree, uintptr(b.Pointer)) })
}

// ReadAt copies device memory at off to p. It implements io.ReaderAt.
func (b *Buffer) ReadAt(p []byte, off int64) (int, error) {
	n, end := len(p), error(nil)
	if off < 0 || off > b.Size {
		return 0, fmt.Errorf("read device memory of %d bytes at offset %d: %w", b.Size, off, io.EOF)
	}
	if int64(n) > b.Size-off {
		n, end = int(b.Size-off), io.EOF
	}
	if err := b.copy(symMemcpyDtoHAsync, p[:n], off); err != nil {
		return 0, fmt.Errorf("read device memory: %w", err)
	}
	return n, end
}

// WriteAt copies p to device memory at off. It implements io.WriterAt.
func (b *Buffer) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 || off > b.Size || int64(len(p)) > b.Size-off {
		return 0, fmt.Errorf("write %d bytes at offset %d of device memory of %d: %w", len(p), off, b.Size, io.ErrShortWrite)
	}
	if err := b.copy(symMemcpyHtoDAsync, p, off); err != nil {
		return 0, fmt.Errorf("write device memory: %w", err)
	}
	return len(p), nil
}

// copy copies between p and the device, and waits for the end.
func (b *Buffer) copy(s symbol, p []byte, off int64) error {
	if len(p) == 0 {
		return nil
	}
	c := b.context
	c.mu.Lock()
	defer c.mu.Unlock()
	defer runtime.KeepAlive(p)
	return c.Do(func() error {
		if c.copying == nil {
			stream, err := c.NewStream()
			if err != nil {
				return err
			}
			c.copying = stream
		}
		device := uintptr(b.Pointer) + uintptr(off)
		var err error
		if s == symMemcpyHtoDAsync {
			err = c.driver.call(s, device, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), c.copying.handle)
		} else {
			err = c.driver.call(s, uintptr(unsafe.Pointer(&p[0])), device, uintptr(len(p)), c.copying.handle)
		}
		if err != nil {
			return err
		}
		return c.copying.Synchronize()
	})
}
