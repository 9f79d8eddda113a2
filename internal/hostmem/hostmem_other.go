//go:build !linux

package hostmem

import (
	"fmt"
	"runtime"
)

// Alloc returns size bytes of zeroed memory. Its pages are mapped at their first write.
// Huge pages and locking exist on Linux only; it returns an error for them.
func Alloc(size int64, o Options) (*Buffer, error) {
	if o.HugePages || o.Lock {
		return nil, fmt.Errorf("allocate huge or locked pages on %s: only Linux has them here", runtime.GOOS)
	}
	if size < 0 || size != int64(int(size)) || size > 1<<46 {
		return nil, fmt.Errorf("allocate %d bytes: %w", size, ErrNoMemory)
	}
	return &Buffer{Bytes: make([]byte, size)}, nil
}
