//go:build !linux || !(amd64 || arm64) || static

package nvml

//go:uintptrescapes
func callC(uintptr, ...uintptr) uintptr { return uintptr(uninitialized) }
