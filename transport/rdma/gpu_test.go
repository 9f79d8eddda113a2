package rdma_test

import (
	"testing"

	"kvbench/internal/cudadrv"
	"kvbench/internal/cudadrv/testdouble"
	"kvbench/transport"
	"kvbench/transport/rdma"
	"kvbench/transport/transporttest"
)

// before is the part of each allocation that lies before the memory of a case, so that
// a transport which forgets the offset is seen.
const before = 4096 + 512

// buffer is device memory, part of an allocation.
type buffer struct {
	*cudadrv.Buffer
	size int
}

// gpuMemory is the suite's Allocator on device 0.
func gpuMemory(size int) (transporttest.Buffer, error) {
	d, err := cudadrv.Open()
	if err != nil {
		return nil, err
	}
	c, err := d.Context(0)
	if err != nil {
		return nil, err
	}
	b, err := c.AllocForRDMA(before + int64(size))
	if err != nil {
		return nil, err
	}
	return buffer{b, size}, nil
}

func (b buffer) Memory() transport.Memory {
	return transport.Memory{Kind: transport.CUDAMemory, Pointer: uintptr(b.Pointer) + before, Length: int64(b.size)}
}

func (b buffer) ReadAt(p []byte, off int64) (int, error)  { return b.Buffer.ReadAt(p, before+off) }
func (b buffer) WriteAt(p []byte, off int64) (int, error) { return b.Buffer.WriteAt(p, before+off) }

// TestGPUConformance runs the suite over GPU memory that UCX is given directly.
func TestGPUConformance(t *testing.T) {
	testdouble.Only(t)
	for _, lane := range []string{"tcp", "shm"} {
		t.Run(lane, func(t *testing.T) {
			transporttest.Run(t, transporttest.Subject{
				Listener: rdma.WithReachableGPUs(), ListenerMemory: gpuMemory,
				Config: transport.Config{Lane: lane, Memory: transport.CUDAMemory},
			})
		})
	}
}
