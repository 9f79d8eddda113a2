package cudadrv_test

import (
	"fmt"
	"testing"

	"kvbench/internal/cudadrv"
)

// BenchmarkDeviceCopy copies within device 0: on a real GPU, the ceiling of what
// transport/cuda can reach there.
func BenchmarkDeviceCopy(b *testing.B) {
	for _, size := range []int64{64 << 10, 4 << 20, 64 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			c := context(b)
			from, to := alloc(b, c, make([]byte, size)), alloc(b, c, make([]byte, size))
			b.SetBytes(size)
			b.ReportAllocs()
			err := c.Do(func() error {
				s, err := c.NewStream()
				if err != nil {
					return err
				}
				var copies cudadrv.Copies
				copies.Add(to.Pointer, from.Pointer, size)
				for b.Loop() {
					if err := s.Copy(&copies); err != nil {
						return err
					}
					if err := s.Synchronize(); err != nil {
						return err
					}
				}
				return s.Close()
			})
			if err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkHostCopy copies between device 0 and pageable host memory.
func BenchmarkHostCopy(b *testing.B) {
	const size = 64 << 20
	buffer := alloc(b, context(b), make([]byte, size))
	host := make([]byte, size)
	for name, copyOnce := range map[string]func([]byte, int64) (int, error){"DtoH": buffer.ReadAt, "HtoD": buffer.WriteAt} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				if _, err := copyOnce(host, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
