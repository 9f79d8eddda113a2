package nvml

import (
	"errors"
	"fmt"

	"kvbench/internal/dynlib"
)

var (
	// ErrNotBuilt is returned by builds that cannot load a library.
	ErrNotBuilt = errors.New("built without NVML: it needs a build for Linux on amd64 or arm64 without the tag static")

	// ErrNoLibrary is returned when libnvidia-ml.so.1 is not found or does not load.
	ErrNoLibrary = errors.New("no NVML")

	// ErrTooOld is returned by a call that the loaded library lacks.
	ErrTooOld = errors.New("NVIDIA driver too old: its NVML lacks")

	// ErrUnclear is returned when NVML's answers do not determine the link between two
	// GPUs.
	ErrUnclear = errors.New("NVML does not say")

	// ErrOneGPU is returned when the link of a GPU to itself is requested.
	ErrOneGPU = errors.New("no link joins a GPU to itself")
)

// Result is an nvmlReturn_t, the result of a call. As an error it is a target for
// errors.Is.
type Result uint32

// The results that callers handle.
const (
	success         Result = 0
	uninitialized   Result = 1
	InvalidArgument Result = 2
	NotSupported    Result = 3
)

func (r Result) Error() string { return fmt.Sprintf("NVML error %d", uint32(r)) }

// Error is a failed call of NVML.
type Error struct {
	Call   string
	Result Result
	Text   string // NVML's text, such as Not Supported; empty if it has none
}

func (e *Error) Error() string {
	if e.Text == "" {
		return fmt.Sprintf("%s: %v", e.Call, e.Result)
	}
	return fmt.Sprintf("%s: %s (%d)", e.Call, e.Text, uint32(e.Result))
}

// Is reports whether target is e's Result.
func (e *Error) Is(target error) bool { return e.Result == target }

// noLibrary returns the error of loading the library. The linker's message already names
// it.
func noLibrary(err error) error {
	if errors.Is(err, dynlib.ErrNotBuilt) {
		return ErrNotBuilt
	}
	return fmt.Errorf("%w: %w", ErrNoLibrary, err)
}
