package hostmem

import (
	"fmt"

	"golang.org/x/sys/unix"

	"kvbench/internal/units"
)

// Alloc returns size bytes of zeroed memory. Its pages are mapped at their first write.
func Alloc(size int64, o Options) (*Buffer, error) {
	if size == 0 {
		return &Buffer{}, nil
	}
	if size < 0 || size != int64(int(size)) {
		return nil, fmt.Errorf("allocate %d bytes: %w", size, ErrNoMemory)
	}
	mem, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("allocate %s: %w: %w", units.BinaryBytes(size), ErrNoMemory, err)
	}
	b := &Buffer{Bytes: mem, free: func() error { return unix.Munmap(mem) }}
	if o.HugePages {
		if err := unix.Madvise(mem, unix.MADV_HUGEPAGE); err != nil {
			b.Close()
			return nil, fmt.Errorf("ask for huge pages: %w; the kernel needs transparent huge pages set to madvise or always", err)
		}
	}
	if o.Lock {
		if err := unix.Mlock(mem); err != nil {
			b.Close()
			return nil, fmt.Errorf("lock %s in memory: %w; raise the limit with ulimit -l", units.BinaryBytes(size), err)
		}
	}
	return b, nil
}
