//go:build timing

package cuda_test

import (
	"testing"

	"kvbench/internal/cudadrv/testdouble"
	"kvbench/transport"
	"kvbench/transport/cuda"
)

// TestTransfersAllocateNothing holds Post and Poll to it, and what runs beside them. Under
// the race detector pools give less back.
func TestTransfersAllocateNothing(t *testing.T) {
	testdouble.Need(t)
	child := start(t, 0)
	l := must(child.Listen(t.Context(), transport.Config{}))(t)
	in := must(cuda.New().Dial(t.Context(), l.Address(), transport.Config{}))(t)
	defer in.Close()
	target := must(l.AcceptTarget(t.Context()))(t)
	there, here := must(child.Alloc(1<<20))(t), must(memoryOf(0)(1<<20))(t)
	region := must(target.Register(there.Memory()))(t)
	local := must(in.Register(here.Memory()))(t)
	remote := must(in.Import(must(target.Advertise(region))(t)))(t)
	descs := make([]transport.Descriptor, 64)
	for i := range descs {
		descs[i] = transport.Descriptor{Local: int64(i) << 12, Remote: int64(63-i) << 12, Length: 1 << 12}
	}
	var done [1]transport.Completion
	// Fewer than the notices that the target keeps: nobody takes them.
	got := testing.AllocsPerRun(100, func() {
		x := transport.Transfer{Op: transport.Write, Local: local, Remote: remote[0], Descriptors: descs}
		if err := transferOnce(t.Context(), in, x, done[:]); err != nil {
			t.Fatal(err)
		}
	})
	if got >= 1 {
		t.Errorf("%v allocations for each transfer", got)
	}
}
