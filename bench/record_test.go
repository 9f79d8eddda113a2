package bench

import (
	"testing"
	"time"

	"kvbench/transport"
	"kvbench/transport/tcp"
)

// TestRequestAllocatesNothing, as a layer does not: see BenchmarkRecordLayer.
func TestRequestAllocatesNothing(t *testing.T) {
	r, d := newRecord(), time.Duration(1)
	// There is room for the first thousand.
	if n := testing.AllocsPerRun(900, func() {
		r.request(d, moved{span: span{d, 2 * d}, first: d, prefill: d}, 1)
	}); n != 0 {
		t.Errorf("a request allocates %g times", n)
	}
}

// TestMoveAllocatesNothing: neither the loop that posts nor what is below it, over
// TCP, once it runs.
func TestMoveAllocatesNothing(t *testing.T) {
	for _, direction := range directions {
		t.Run(string(direction), func(t *testing.T) {
			in, descriptors, record := moving(t, direction)
			request := uint64(0)
			move := func() {
				request++
				if _, err := in.move(t.Context(), job{request: request, descriptors: descriptors, record: record}); err != nil {
					t.Fatal(err)
				}
			}
			for range 20 {
				move()
			}
			// Goroutines of the kernel's and the runtime's own count too: a stray
			// allocation of theirs is less than one a request.
			if n := testing.AllocsPerRun(200, move); n >= 1 {
				t.Errorf("a request of %d layers allocates %g times", len(descriptors), n)
			}
		})
	}
}

// moving connects an initiator over TCP to a target whose notices are taken.
func moving(t testing.TB, direction Direction) (*initiator, [][]descriptor, *Record) {
	t.Helper()
	return movingOver(t, tcp.New(), direction)
}

func movingOver(t testing.TB, over transport.Transport, direction Direction) (*initiator, [][]descriptor, *Record) {
	t.Helper()
	plan := planOf(direction, spec(t))
	cells, err := plan.cells()
	if err != nil {
		t.Fatal(err)
	}
	in, _ := pair(t, over, plan, cells)
	return in, cells[0].descriptors, newRecord()
}

// BenchmarkMove is a request over TCP on loopback, by direction.
func BenchmarkMove(b *testing.B) {
	for _, direction := range directions {
		b.Run(string(direction), func(b *testing.B) {
			in, descriptors, record := moving(b, direction)
			b.ReportAllocs()
			b.SetBytes(4 * 64 << 10)
			request := uint64(0)
			for b.Loop() {
				request++
				if _, err := in.move(b.Context(), job{request: request, descriptors: descriptors, record: record}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestReplay is Lindley's recurrence by hand: due at 0, 1, 2 and 20 ms, served in 5,
// 5, 1 and 2, four requests are done at 5, 10, 11 and 22 and took 5, 9, 9 and 2 ms.
func TestReplay(t *testing.T) {
	const ms = time.Millisecond
	got := replay([]response{{due: 0, service: 5 * ms}, {due: 1 * ms, service: 5 * ms}, {due: 2 * ms, service: 1 * ms}, {due: 20 * ms, service: 2 * ms}})
	if want := 25 * ms / 4; got != want {
		t.Errorf("mean response %v, want %v", got, want)
	}
	if replay(nil) != 0 {
		t.Error("nothing took time")
	}
}
