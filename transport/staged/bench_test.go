package staged_test

import (
	"fmt"
	"testing"

	"kvbench/transport"
)

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
