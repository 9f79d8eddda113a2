// Package dynlib finds functions of shared libraries at run time, with cgo or without. It
// works on Linux for amd64 and arm64, without the tag static.
package dynlib

import (
	"errors"
	"unsafe"
)

// ErrNotBuilt is returned by a build that cannot load a library.
var ErrNotBuilt = errors.New("built without shared libraries")

// String copies a C string, which ends with a zero byte.
func String(p *byte) string {
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}
