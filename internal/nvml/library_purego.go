//go:build linux && (amd64 || arm64) && !static

package nvml

import "github.com/ebitengine/purego"

// callC calls a C function of integers and pointers and returns its result, an integer or a
// pointer.
//
//go:uintptrescapes
func callC(function uintptr, args ...uintptr) uintptr {
	r, _, _ := purego.SyscallN(function, args...)
	return r
}
