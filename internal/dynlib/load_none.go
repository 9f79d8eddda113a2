//go:build !linux || !(amd64 || arm64) || static

package dynlib

// Open returns ErrNotBuilt.
func Open(string) (uintptr, error) { return 0, ErrNotBuilt }

// Find returns 0.
func Find(uintptr, string) uintptr { return 0 }
