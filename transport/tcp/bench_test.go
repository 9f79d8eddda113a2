package tcp_test

import (
	"fmt"
	"testing"

	"kvbench/transport"
	"kvbench/transport/tcp"
)

// path is a connected pair, with the target's notices taken.
type path struct {
	in     transport.Initiator
	target transport.Target
	local  transport.Region
	remote transport.RemoteRegion
	done   [64]transport.Completion
}

func connect(tb testing.TB, cfg transport.Config, size int) *path {
	tb.Helper()
	must := func(err error) {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
	}
	l, err := tcp.New().Listen(tb.Context(), cfg)
	must(err)
	targets := make(chan transport.Target, 1)
	go func() {
		t, err := l.AcceptTarget(tb.Context())
		if err != nil {
			tb.Error(err)
		}
		targets <- t
	}()
	p := &path{}
	p.in, err = tcp.New().Dial(tb.Context(), l.Address(), cfg)
	must(err)
	t := <-targets
	p.target = t
	must(l.Close())
	tb.Cleanup(func() { p.in.Close(); t.Close() })
	p.local, err = p.in.Register(transport.HostBytes(make([]byte, size)))
	must(err)
	region, err := t.Register(transport.HostBytes(make([]byte, size)))
	must(err)
	ad, err := t.Advertise(region)
	must(err)
	regions, err := p.in.Import(ad)
	must(err)
	p.remote = regions[0]
	go func() {
		var notices [64]transport.Notice
		for {
			if _, err := t.Notifications(tb.Context(), notices[:]); err != nil {
				return
			}
		}
	}()
	return p
}

// move posts n transfers of the descriptors and waits for all of them.
func (p *path) move(tb testing.TB, op transport.Op, n int, descs []transport.Descriptor) {
	for i := range n {
		if err := p.in.Post(transport.Transfer{ID: uint64(i), Op: op, Local: p.local, Remote: p.remote, Descriptors: descs}); err != nil {
			tb.Fatal(err)
		}
	}
	for left := n; left > 0; {
		got, err := p.in.Poll(p.done[:])
		if err != nil {
			tb.Fatal(err)
		}
		for _, c := range p.done[:got] {
			if c.Err != nil {
				tb.Fatal(c.Err)
			}
		}
		if left -= got; got == 0 {
			if err := p.in.Wait(tb.Context()); err != nil {
				tb.Fatal(err)
			}
		}
	}
}

// cut makes n descriptors of size bytes together, in reverse order at the target.
func cut(size, n int) []transport.Descriptor {
	descs := make([]transport.Descriptor, n)
	each := size / n
	for i := range descs {
		descs[i] = transport.Descriptor{Local: int64(i * each), Remote: int64((n - 1 - i) * each), Length: int64(each)}
	}
	return descs
}

// BenchmarkTransfer moves batches of eight transfers; a transfer is an op's eighth.
func BenchmarkTransfer(b *testing.B) {
	for _, op := range []transport.Op{transport.Write, transport.Read} {
		for _, c := range []struct{ size, descriptors int }{{64, 1}, {1 << 20, 1}, {1 << 20, 256}, {16 << 20, 4096}} {
			b.Run(fmt.Sprintf("%v/%dKiB/%d", op, c.size>>10, c.descriptors), func(b *testing.B) {
				p := connect(b, transport.Config{}, c.size)
				descs := cut(c.size, c.descriptors)
				p.move(b, op, 8, descs)
				b.SetBytes(int64(8 * c.size))
				b.ReportAllocs()
				for b.Loop() {
					p.move(b, op, 8, descs)
				}
			})
		}
	}
}

// TestNoAllocation holds the data path to its promise, on both sides.
func TestNoAllocation(t *testing.T) {
	for _, op := range []transport.Op{transport.Write, transport.Read} {
		p := connect(t, transport.Config{Streams: 2}, 1<<20)
		descs := cut(1<<20, 64)
		p.move(t, op, 16, descs)
		// A few belong to the runtime (timers, a stack that grew); a data path that
		// allocates would show at least one a transfer.
		if n := testing.AllocsPerRun(20, func() { p.move(t, op, 16, descs) }); n >= 16 {
			t.Errorf("%v: %.0f allocations in 16 transfers", op, n)
		}
	}
}
