//go:build linux && (amd64 || arm64) && !static

package cudadrv

import "github.com/ebitengine/purego"

// callC calls a C function of integers and pointers that returns an int.
//
//go:uintptrescapes
func callC(function uintptr, args ...uintptr) Result {
	r, _, _ := purego.SyscallN(function, args...)
	return Result(int32(r))
}

// openHandleFunc makes a Go function of cuIpcOpenMemHandle_v2, which takes a struct of 64
// bytes by value. purego passes it by the platform's rules: on the stack on amd64, by a
// copy's address on arm64.
func openHandleFunc(function uintptr) func(out *DevicePointer, handle ipcMemHandle, flags uint32) int32 {
	var open func(*DevicePointer, ipcMemHandle, uint32) int32
	purego.RegisterFunc(&open, function)
	return open
}
