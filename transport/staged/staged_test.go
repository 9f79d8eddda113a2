package staged_test

import (
	"os"
	"testing"

	"kvbench/internal/cudadrv"
	"kvbench/internal/cudadrv/testdouble"
	"kvbench/transport"
	"kvbench/transport/staged"
	"kvbench/transport/tcp"
	"kvbench/transport/transporttest"
)

func TestMain(m *testing.M) { os.Exit(testdouble.Main(m)) }

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
	b, err := c.Alloc(before + int64(size))
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

func TestConformance(t *testing.T) {
	testdouble.Need(t)
	for name, cfg := range map[string]transport.Config{"OneStream": {}, "ThreeStreamsBusy": {Streams: 3, BusyPoll: true}} {
		t.Run(name, func(t *testing.T) {
			transporttest.Run(t, transporttest.Subject{Listener: staged.Over(tcp.New()), ListenerMemory: gpuMemory, Config: cfg})
		})
	}
}
