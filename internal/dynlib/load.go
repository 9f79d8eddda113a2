//go:build linux && (amd64 || arm64) && !static

package dynlib

import (
	"runtime"

	"github.com/ebitengine/purego"
)

// Open loads a library for the life of the process. Its error is the linker's.
func Open(name string) (uintptr, error) {
	// What went wrong is kept by the C library for each thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

// Find returns a function's address, or 0 where the library lacks it.
func Find(library uintptr, name string) uintptr {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	address, err := purego.Dlsym(library, name)
	if err != nil {
		return 0
	}
	return address
}
