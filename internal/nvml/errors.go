package nvml

import (
	"errors"
	"fmt"

	"kvbench/internal/dynlib"
)

var (
	// ErrNotBuilt is returned by builds that cannot load a library.
	ErrNotBuilt = errors.New("built without NVML: it needs a build for Linux on amd64 or arm64 without the tag static")

	// ErrNoLibrary is returned where libnvidia-ml.so.1 is not found or does not load.
	ErrNoLibrary = errors.New("no NVML")

	// ErrTooOld is returned by a call that the loaded library lacks.
	ErrTooOld = errors.New("NVIDIA driver too old: its NVML lacks")

	// ErrUnclear is returned where NVML answers and the answers do not tell what
	// joins two GPUs.
	ErrUnclear = errors.New("NVML does not say")

	// ErrOneGPU is returned where a GPU's link to itself is asked for.
	ErrOneGPU = errors.New("no link joins a GPU to itself")
)

// Result is an nvmlReturn_t: what a call returned. As an error it is a target for
// errors.Is.
type Result uint32

// The results that somebody acts on.
const (
	success         Result = 0
	uninitialized   Result = 1
	InvalidArgument Result = 2
	NotSupported    Result = 3
)

func (r Result) Error() string { return fmt.Sprintf("NVML error %d", uint32(r)) }

// Error is a call of NVML's that failed.
type Error struct {
	Call   string
	Result Result
	Text   string // NVML's words for it, such as Not Supported; empty where it has none
}

func (e *Error) Error() string {
	if e.Text == "" {
		return fmt.Sprintf("%s: %v", e.Call, e.Result)
	}
	return fmt.Sprintf("%s: %s (%d)", e.Call, e.Text, uint32(e.Result))
}

// Is reports whether target is e's Result.
func (e *Error) Is(target error) bool { return e.Result == target }

// noLibrary says why the library did not load. The linker's own words name it.
func noLibrary(err error) error {
	if errors.Is(err, dynlib.ErrNotBuilt) {
		return ErrNotBuilt
	}
	return fmt.Errorf("%w: %w", ErrNoLibrary, err)
}
