//go:build ucx && cgo && linux

package ucx

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"
)

// need skips a test where libucp cannot be loaded, and fails it if KVBENCH_REQUIRE
// names rdma.
func need(t *testing.T) {
	t.Helper()
	err := Load()
	if err != nil && slices.Contains(strings.Split(os.Getenv("KVBENCH_REQUIRE"), ","), "rdma") {
		t.Fatalf("KVBENCH_REQUIRE names rdma: %v", err)
	}
	if err != nil {
		t.Skip(err)
	}
}

// side is a worker on the thread that made it, which alone may touch it.
type side struct {
	*Worker
	t      *testing.T
	calls  chan func()
	events []Event // that have happened and were not looked at
	mapped []Memory
}

// newSide makes a worker on lanes with a number of slots.
func newSide(t *testing.T, lanes string, slots int) *side {
	t.Helper()
	s := &side{t: t, calls: make(chan func())}
	go func() {
		runtime.LockOSThread()
		for f := range s.calls {
			f()
		}
	}()
	t.Cleanup(func() { close(s.calls) })
	var err error
	s.do(func() {
		s.Worker, err = NewWorker(Options{Settings: []Setting{{"TLS", lanes}, {"MAX_RNDV_RAILS", "1"}}, Slots: slots, Window: 16})
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// do runs f on the worker's thread.
func (s *side) do(f func()) {
	done := make(chan struct{})
	s.calls <- func() { f(); close(done) }
	<-done
}

// turn moves the worker on, whose peer is moved on by its own turns.
func (s *side) turn() {
	s.do(func() {
		var events [8]Event
		s.events = append(s.events, events[:s.Progress(events[:], 0, 0)]...)
	})
}

// join connects the worker to another.
func (s *side) join(to *side) {
	s.t.Helper()
	var address []byte
	var err error
	to.do(func() { address, err = to.Address() })
	if err == nil {
		s.do(func() { err = s.Connect(address) })
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.do(s.Greet)
}

// memory is n bytes of registered memory, with a value in each.
func (s *side) memory(n int, value byte) (Memory, []byte) {
	s.t.Helper()
	var m Memory
	var err error
	s.do(func() { m, err = s.Allocate(int64(n)) })
	if err != nil {
		s.t.Fatal(err)
	}
	s.mapped = append(s.mapped, m)
	b := unsafe.Slice((*byte)(m.Pointer()), n)
	for i := range b {
		b[i] = value
	}
	return m, b
}

// pair is two workers of this process, connected.
type pair struct {
	t    *testing.T
	a, b *side
}

func connected(t *testing.T, lanes string, slotsA, slotsB int) *pair {
	t.Helper()
	need(t)
	p := &pair{t, newSide(t, lanes, slotsA), newSide(t, lanes, slotsB)}
	p.a.join(p.b)
	p.b.join(p.a)
	t.Cleanup(p.part)
	p.await(p.a, Greeted)
	p.await(p.b, Greeted)
	return p
}

// await takes the next event of one side, which must be of a kind.
func (p *pair) await(s *side, kind Kind) Event {
	p.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); len(s.events) == 0; {
		if time.Now().After(deadline) {
			p.t.Fatalf("no event in 10 s, want kind %d", kind)
		}
		p.a.turn()
		p.b.turn()
	}
	e := s.events[0]
	s.events = s.events[1:]
	if e.Kind != kind {
		p.t.Fatalf("event %+v (%s), want kind %d", e, StatusText(int(e.Status)), kind)
	}
	return e
}

// part ends both, in step.
func (p *pair) part() {
	p.a.do(p.a.Stop)
	p.b.do(p.b.Stop)
	idle := func() (both bool) {
		p.a.do(func() { both = p.a.Idle() })
		p.b.do(func() { both = both && p.b.Idle() })
		return both
	}
	for deadline := time.Now().Add(10 * time.Second); !idle(); {
		if time.Now().After(deadline) {
			p.t.Fatal("UCX still holds something")
		}
		p.a.turn()
		p.b.turn()
	}
	var wg sync.WaitGroup
	for _, s := range []*side{p.a, p.b} {
		wg.Go(func() { s.do(s.end) })
	}
	wg.Wait()
}

// end lets go of everything, on the worker's thread.
func (s *side) end() {
	if !s.Disconnect() {
		s.t.Error("UCX does not let the endpoint end")
		return
	}
	for _, m := range s.mapped {
		if err := s.Unmap(m); err != nil {
			s.t.Error(err)
		}
	}
	s.Free()
}

// lanesHere are UCX's lanes that every host has.
var lanesHere = []string{"sm", "tcp"}

// TestOperations moves bytes in three pieces each way and looks at them, and at
// every event that tells of it.
func TestOperations(t *testing.T) {
	const size = 100_000 // past the thresholds of short, copied and fetched messages
	for _, lanes := range lanesHere {
		for name, op := range map[string]Op{"put": Put, "messages": ActiveMessage, "get": Get} {
			t.Run(lanes+" "+name, func(t *testing.T) {
				p := connected(t, lanes, 4, 4)
				local, here := p.a.memory(3*size, 1)
				remote, there := p.b.memory(3*size, 2)
				p.b.do(func() { p.b.OpenRegion(7, remote) })
				var key Remote
				var err error
				p.a.do(func() { key, err = p.a.Import(remote.Key) })
				if err != nil {
					t.Fatal(err)
				}
				base := uint64(remote.Address)
				if op == ActiveMessage {
					base = 0
				}
				pieces := p.a.Pieces(2, 3)
				for i, length := range []uint64{size, 1, 60} {
					pieces[i] = Piece{Local: uint64(local.Address) + uint64(i)*size, Remote: base + uint64(2-i)*size, Length: length}
				}
				p.a.Fill(2, op, 99, size+61, 3, local, key, 7)
				before := Clock()
				p.a.do(func() { p.a.Submit(2) })
				if op != Get {
					if e := p.await(p.a, Local); e.ID != 99 || e.Slot != 2 {
						t.Errorf("locally complete: %+v", e)
					}
				}
				e := p.await(p.a, Delivered)
				if e.ID != 99 || e.Slot != 2 || e.Bytes != size+61 || e.At < before || e.At > Clock() {
					t.Errorf("delivered: %+v, posted at %d", e, before)
				}
				kind := Written
				if op == Get {
					kind = Read
				}
				if e := p.await(p.b, kind); e.ID != 99 || e.Slot != 2 || e.Bytes != size+61 {
					t.Errorf("noticed: %+v", e)
				}
				source, destination := here, there
				if op == Get {
					source, destination = there, here
				}
				if got := bytes.Count(destination, source[:1]); got != size+61 {
					t.Errorf("%d bytes have moved, want %d", got, size+61)
				}
				if destination[0] == destination[60] && op != Get { // 60 bytes go to the beginning
					t.Errorf("the piece of 60 bytes lies elsewhere")
				}
			})
		}
	}
}

// TestViolations: a message that fits nothing here changes nothing here, and is told.
func TestViolations(t *testing.T) {
	const size = 1 << 16
	for _, lanes := range lanesHere {
		for _, c := range []struct {
			name           string
			slot           int
			region         uint32
			offset, length uint64
		}{
			{"region that never was", 0, 9, 0, 8},
			{"region that is closed", 0, 2, 0, 8},
			{"one byte past the end", 0, 1, size - 7, 8},
			{"far past the end", 0, 1, 1 << 40, 8},
			{"offset that wraps", 0, 1, ^uint64(0) - 3, 8},
			{"slot that is not there", 3, 1, 0, 8},
			{"long, to a region that never was", 0, 9, 0, size},
			{"long, past the end", 0, 1, 1, size},
			{"long, slot that is not there", 3, 1, 0, size},
		} {
			t.Run(lanes+" "+c.name, func(t *testing.T) {
				p := connected(t, lanes, 4, 2)
				local, _ := p.a.memory(size, 1)
				remote, there := p.b.memory(size, 2)
				p.b.do(func() {
					p.b.OpenRegion(1, remote)
					p.b.OpenRegion(2, remote)
					p.b.CloseRegion(2)
				})
				p.a.Pieces(c.slot, 1)[0] = Piece{Local: uint64(local.Address), Remote: c.offset, Length: c.length}
				p.a.Fill(c.slot, ActiveMessage, 1, int64(c.length), 1, local, Remote{}, c.region)
				p.a.do(func() { p.a.Submit(c.slot) })
				p.await(p.b, Violation)
				if bytes.Contains(there, []byte{1}) {
					t.Error("the message was written")
				}
				for _, e := range p.a.events {
					if e.Kind == Delivered {
						t.Errorf("the sender is told of delivery: %+v", e)
					}
				}
			})
		}
	}
}

// TestForeignAcknowledgement: an acknowledgement of what was never posted is no delivery.
func TestForeignAcknowledgement(t *testing.T) {
	p := connected(t, "sm", 2, 2)
	local, _ := p.a.memory(64, 1)
	remote, _ := p.b.memory(64, 2)
	p.b.do(func() { p.b.OpenRegion(1, remote) })
	fill := func(id uint64) {
		p.a.Pieces(0, 1)[0] = Piece{Local: uint64(local.Address), Length: 8}
		p.a.Fill(0, ActiveMessage, id, 8, 1, local, Remote{}, 1)
	}
	fill(1)
	p.a.do(func() { p.a.Submit(0) })
	p.await(p.a, Local)
	// The slot is another transfer's before the acknowledgement of the first is in.
	fill(2)
	p.await(p.a, Violation)
}

// TestWake: Progress may return early, where UCX has something to do, and sleeps
// otherwise, for as long as it may and no longer than until Wake.
func TestWake(t *testing.T) {
	p := connected(t, "sm", 1, 1)
	progress := func(sleep time.Duration) (took time.Duration) {
		p.a.do(func() {
			var events [1]Event
			start := time.Now()
			if n := p.a.Progress(events[:], 0, sleep); n != 0 {
				t.Errorf("%+v has happened", events[0])
			}
			took = time.Since(start)
		})
		return took
	}
	const long, slept = 20 * time.Second, 10 * time.Millisecond
	for tries := 1; progress(2*slept) < slept; tries++ {
		if tries == 100 {
			t.Fatal("Progress never sleeps")
		}
	}
	calling, called := make(chan struct{}), make(chan struct{})
	time.AfterFunc(50*time.Millisecond, func() {
		close(calling)
		p.a.Wake()
		close(called)
	})
	for waiting := true; waiting; {
		if took := progress(long); took > long/2 {
			t.Errorf("woken after %v", took)
		}
		select {
		case <-calling:
			waiting = false
		default:
		}
	}
	<-called
	p.a.Wake() // before the sleep: must not be lost
	if took := progress(long); took > long/2 {
		t.Errorf("a call before the sleep woke it after %v", took)
	}
}

// TestRefusedSettings: what UCX does not take is named.
func TestRefusedSettings(t *testing.T) {
	need(t)
	for _, c := range []struct {
		setting Setting
		call    string
		status  int
	}{
		{Setting{"MAX_RNDV_RAILS", "many"}, "MAX_RNDV_RAILS", -5}, // UCS_ERR_INVALID_PARAM
		{Setting{"TLS", "no_such_lane"}, "ucp_init", StatusNoDevice},
	} {
		_, err := NewWorker(Options{Settings: []Setting{c.setting}, Slots: 1, Window: 1})
		var e *Error
		if !errors.As(err, &e) || e.Call != c.call || e.Status != c.status || e.Message != StatusText(c.status) {
			t.Errorf("%v: error %v, want %d of %s", c.setting, err, c.status, c.call)
		}
	}
}

func TestEmptyNames(t *testing.T) {
	p := connected(t, "sm", 1, 1)
	p.a.do(func() {
		if err := p.a.Connect(nil); err == nil {
			t.Error("an empty address connects")
		}
		if _, err := p.a.Import(nil); err == nil {
			t.Error("an empty key is imported")
		}
	})
}

// TestVersion: it is that of the library that is loaded, which may be newer than
// the headers of this build but has the same major number.
func TestVersion(t *testing.T) {
	need(t)
	if v, err := Version(); err != nil || !strings.HasPrefix(v, "1.") {
		t.Errorf("Version = %q, %v", v, err)
	}
}

// TestSurvey: the lanes that every host has are listed, also where the environment
// leaves them out.
func TestSurvey(t *testing.T) {
	need(t)
	t.Setenv("UCX_TLS", "self")
	text, err := Survey()
	if err != nil {
		t.Fatal(err)
	}
	for _, lane := range []string{"tcp/lo", "sysv/memory", "posix/memory"} {
		if !strings.Contains(text, lane) {
			t.Errorf("no %s in\n%s", lane, text)
		}
	}
}
