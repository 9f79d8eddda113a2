package cudadrv

import (
	"errors"
	"fmt"
	"os"

	"kvbench/internal/dynlib"
)

var (
	// ErrNotBuilt is returned by builds that cannot load a library.
	ErrNotBuilt = errors.New("built without CUDA: it needs a build for Linux on amd64 or arm64 without the tag static")

	// ErrNoDriver is returned when libcuda.so.1 is not found or does not load.
	ErrNoDriver = errors.New("no CUDA driver")

	// ErrNoDevice is returned when the driver shows no device.
	ErrNoDevice = errors.New("no CUDA device")

	// ErrTooOld is returned by a call that the loaded driver lacks.
	ErrTooOld = errors.New("CUDA driver too old")
)

// Result is a CUresult, the result of a call of the driver. As an error it is a target for
// errors.Is.
type Result int32

// The results that callers handle.
const (
	success        Result = 0
	notInitialized Result = 3
	noDevice       Result = 100
	notReady       Result = 600

	InvalidValue          Result = 1
	OutOfMemory           Result = 2
	InvalidDevice         Result = 101
	InvalidContext        Result = 201
	PeerAccessUnsupported Result = 217
	InvalidHandle         Result = 400
	NotFound              Result = 500
	NotSupported          Result = 801
)

func (r Result) Error() string { return fmt.Sprintf("CUDA error %d", int32(r)) }

// Error is a failed call of the driver.
type Error struct {
	Call   string
	Result Result
	Name   string // such as CUDA_ERROR_OUT_OF_MEMORY; empty if the driver has none
	Text   string // the driver's sentence for it
}

func (e *Error) Error() string {
	if e.Name == "" {
		return fmt.Sprintf("%s: %v", e.Call, e.Result)
	}
	return fmt.Sprintf("%s: %s (%d): %s", e.Call, e.Name, int32(e.Result), e.Text)
}

// Is reports whether target is e's Result.
func (e *Error) Is(target error) bool { return e.Result == target }

// tooOld returns the error for a missing call, with the driver version that it needs.
func (d *Driver) tooOld(s symbol) error {
	return fmt.Errorf("%w for %s: it is of CUDA %s, and a driver of CUDA %s or newer is needed",
		ErrTooOld, symbols[s].name, versionString(d.version), versionString(symbols[s].since))
}

// versionString formats a version in cuDriverGetVersion's form.
func versionString(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// noDriver explains why the library did not load.
func noDriver(err error) error {
	if errors.Is(err, dynlib.ErrNotBuilt) {
		return ErrNotBuilt
	}
	return fmt.Errorf("%w: %s not found or not loadable (%w); install NVIDIA's driver, or start the container with access to its GPUs",
		ErrNoDriver, libraryName, err)
}

// hiddenDevices returns the advice that fits CUDA_VISIBLE_DEVICES.
func hiddenDevices() string {
	if v, ok := os.LookupEnv("CUDA_VISIBLE_DEVICES"); ok {
		return fmt.Sprintf("CUDA_VISIBLE_DEVICES=%q hides the others, or all; unset it or name the device in it", v)
	}
	return "see nvidia-smi -L for what the driver finds"
}
