package cudadrv

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"kvbench/internal/dynlib"
)

// libraryName is the name of the driver's library in every Linux distribution.
const libraryName = "libcuda.so.1"

// Driver is the loaded driver. Its methods are safe for concurrent use.
type Driver struct {
	version   int
	count     int
	functions [symbolCount]uintptr
	// openHandle is cuIpcOpenMemHandle_v2, or nil if the driver lacks it.
	openHandle func(out *DevicePointer, handle ipcMemHandle, flags uint32) int32
	// refusesBatches is set once the driver rejects a batch, although it has the call.
	refusesBatches atomic.Bool

	mu       sync.Mutex
	contexts map[int]*Context
}

// Open loads the driver and starts it, once a process: later calls return the first one's
// result. The error wraps ErrNotBuilt, ErrNoDriver, ErrNoDevice or ErrTooOld, or is an
// *Error of cuInit.
var Open = sync.OnceValues(load)

func load() (*Driver, error) {
	library, err := dynlib.Open(libraryName)
	if err != nil {
		return nil, noDriver(err)
	}
	d := &Driver{contexts: make(map[int]*Context)}
	for s := range symbolCount {
		d.functions[s] = dynlib.Find(library, symbols[s].name)
	}
	if f := d.functions[symIpcOpenMemHandle]; f != 0 {
		d.openHandle = openHandleFunc(f)
	}
	var version, count int32
	if err := d.call(symDriverGetVersion, uintptr(unsafe.Pointer(&version))); err != nil {
		return nil, err
	}
	d.version = int(version)
	if err := d.call(symInit, 0); errors.Is(err, noDevice) {
		return nil, fmt.Errorf("%w: %s", ErrNoDevice, hiddenDevices())
	} else if err != nil {
		return nil, fmt.Errorf("start the CUDA driver: %w", err)
	}
	if err := d.call(symDeviceGetCount, uintptr(unsafe.Pointer(&count))); err != nil {
		return nil, err
	}
	d.count = int(count)
	return d, nil
}

// Version is the newest CUDA version that the driver supports, such as 12.8.
func (d *Driver) Version() string { return versionString(d.version) }

// Count is the number of devices that this process sees.
func (d *Driver) Count() int { return d.count }

// Batches reports whether the driver accepts many copies in one call: it has that call
// (CUDA 12.8) and has not rejected it yet.
func (d *Driver) Batches() bool {
	return d.functions[symMemcpyBatchAsync] != 0 && !d.refusesBatches.Load()
}

// call calls the driver. The directive keeps the memory of its pointer arguments in place
// for the call.
//
//go:uintptrescapes
func (d *Driver) call(s symbol, args ...uintptr) error {
	if d.functions[s] == 0 {
		return d.tooOld(s)
	}
	return d.check(s, callC(d.functions[s], args...))
}

// check converts a call's result to an error.
func (d *Driver) check(s symbol, r Result) error {
	if r == success {
		return nil
	}
	return &Error{Call: symbols[s].name, Result: r, Name: d.text(symGetErrorName, r), Text: d.text(symGetErrorString, r)}
}

// text returns the driver's name or sentence for a result.
func (d *Driver) text(s symbol, r Result) string {
	if d.functions[s] == 0 {
		return ""
	}
	var text *byte
	if callC(d.functions[s], uintptr(r), uintptr(unsafe.Pointer(&text))) != success || text == nil {
		return ""
	}
	return dynlib.String(text)
}
