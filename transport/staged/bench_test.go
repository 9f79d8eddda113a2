package staged_test

import (
	"fmt"
	"testing"

	"kvbench/internal/testenv"
	"kvbench/transport"
)

// TestTransfersAllocateNothing holds Post and Poll to it, and what runs beside them.
func TestTransfersAllocateNothing(t *testing.T) {
	if testenv.Race {
		t.Skip("pools give less back under the race detector; the build without it runs this")
	}
	in, target, local, remote, _ := connect(t, 8<<20)
	descs := make([]transport.Descriptor, 64)
	for i := range descs {
		descs[i] = transport.Descriptor{Local: int64(i) << 17, Remote: int64(63-i) << 17, Length: 1 << 17}
	}
	var notices [1]transport.Notice
	var done [1]transport.Completion
	deliver := func(x transport.Transfer) {
		if err := in.Post(x); err != nil {
			t.Fatal(err)
		}
		for {
			n, err := in.Poll(done[:])
			if err != nil || done[0].Err != nil {
				t.Fatal(err, done[0].Err)
			}
			if n == 1 {
				return
			}
			if err := in.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, op := range []transport.Op{transport.Write, transport.Read} {
		got := testing.AllocsPerRun(50, func() {
			deliver(transport.Transfer{Op: op, Local: local, Remote: remote, Descriptors: descs})
			if _, err := target.Notifications(t.Context(), notices[:]); err != nil {
				t.Fatal(err)
			}
		})
		if got >= 1 {
			t.Errorf("%v allocations for each %v", got, op)
		}
	}
}

// BenchmarkWrite moves one transfer at a time between two places in GPU memory, over
// TCP in this process.
func BenchmarkWrite(b *testing.B) {
	for _, size := range []int64{64 << 10, 4 << 20, 64 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			in, target, local, remote, _ := connect(b, size)
			x := transport.Transfer{Op: transport.Write, Local: local, Remote: remote, Descriptors: []transport.Descriptor{{Length: size}}}
			var notices [1]transport.Notice
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				if c := move(b, in, x); c.Err != nil {
					b.Fatal(c.Err)
				}
				if _, err := target.Notifications(b.Context(), notices[:]); err != nil {
					b.Fatal(err)
				}
			}
			s := in.Path().Staging
			b.ReportMetric(s.ToHost.BytesPerSecond/1e9, "DtoH-GB/s")
			b.ReportMetric(target.Path().Staging.FromHost.BytesPerSecond/1e9, "HtoD-GB/s")
		})
	}
}
