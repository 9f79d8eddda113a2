//go:build linux && (amd64 || arm64) && !static

package dynlib

import (
	"runtime"

	"github.com/ebitengine/purego"
)

// Open loads a library for the life of the process. It returns the linker's error.
func Open(name string) (uintptr, error) {
	// The C library keeps the error for each thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

// Find returns a function's address, or 0 if the library lacks it.
func Find(library uintptr, name string) uintptr {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	address, err := purego.Dlsym(library, name)
	if err != nil {
		return 0
	}
	return address
}
