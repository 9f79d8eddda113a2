//go:build linux && (amd64 || arm64) && !static

package nvml

import (
	"runtime"

	"github.com/ebitengine/purego"
)

// openLibrary loads a shared library for the life of the process.
func openLibrary(name string) (uintptr, error) {
	// What went wrong is kept by the C library for each thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

// findSymbol returns a function's address, or 0 where the library lacks it.
func findSymbol(library uintptr, name string) uintptr {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	address, err := purego.Dlsym(library, name)
	if err != nil {
		return 0
	}
	return address
}

// callC calls a C function of integers and pointers and returns what it returned,
// an integer or a pointer.
//
//go:uintptrescapes
func callC(function uintptr, args ...uintptr) uintptr {
	r, _, _ := purego.SyscallN(function, args...)
	return r
}
