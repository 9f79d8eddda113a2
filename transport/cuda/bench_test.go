package cuda_test

import (
	"context"
	"fmt"
	"testing"

	"kvbench/internal/cudadrv/testdouble"
	"kvbench/transport"
	"kvbench/transport/cuda"
)

// BenchmarkTransfer moves one transfer after the other between two processes.
// Beside internal/cudadrv's BenchmarkDeviceCopy, on a real GPU, it says what the
// transport costs; over the test double it measures the double.
func BenchmarkTransfer(b *testing.B) {
	testdouble.Need(b)
	for _, op := range []transport.Op{transport.Write, transport.Read} {
		for _, size := range []int64{64 << 10, 4 << 20, 64 << 20} {
			b.Run(fmt.Sprintf("%v/%dKiB", op, size>>10), func(b *testing.B) { benchmarkTransfer(b, op, size) })
		}
	}
}

func benchmarkTransfer(b *testing.B, op transport.Op, size int64) {
	child := start(b, 0)
	l := must(child.Listen(b.Context(), transport.Config{}))(b)
	in := must(cuda.New().Dial(b.Context(), l.Address(), transport.Config{}))(b)
	defer in.Close()
	target := must(l.AcceptTarget(b.Context()))(b)
	there, here := must(child.Alloc(int(size)))(b), must(memoryOf(0)(int(size)))(b)
	region := must(target.Register(there.Memory()))(b)
	t := transport.Transfer{Op: op, Local: must(in.Register(here.Memory()))(b), Descriptors: []transport.Descriptor{{Length: size}}}
	t.Remote = must(in.Import(must(target.Advertise(region))(b)))(b)[0]
	go takeNotices(target)
	b.SetBytes(size)
	b.ReportAllocs()
	var done [1]transport.Completion
	for b.Loop() {
		if err := transferOnce(b.Context(), in, t, done[:]); err != nil {
			b.Fatal(err)
		}
	}
}

// takeNotices takes a target's notices until it ends.
func takeNotices(target transport.Target) {
	notices := make([]transport.Notice, 256)
	for {
		if _, err := target.Notifications(context.Background(), notices); err != nil {
			return
		}
	}
}

// transferOnce posts a transfer and waits for its completion, which takes the one place of
// done: it allocates nothing.
func transferOnce(ctx context.Context, in transport.Initiator, t transport.Transfer, done []transport.Completion) error {
	if err := in.Post(t); err != nil {
		return err
	}
	for {
		n, err := in.Poll(done)
		if err != nil {
			return err
		}
		if n == 1 {
			return done[0].Err
		}
		if err := in.Wait(ctx); err != nil {
			return err
		}
	}
}
