//go:build ucx && cgo && linux

package ucx

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"kvbench/internal/testenv"
)

// need skips a test where libucp cannot be loaded, and fails it if KVBENCH_REQUIRE
// names rdma.
func need(t *testing.T) {
	t.Helper()
	if err := Load(); err != nil {
		testenv.Skip(t, "rdma", err.Error())
	}
}

// side is a worker with what became of it.
type side struct {
	*Worker
	t      *testing.T
	events chan Event
	hold   sync.Mutex    // held while no events are to be taken, or put into the channel
	taken  chan struct{} // closed when no more events are taken
	idle   bool          // drained
	mapped []Memory
}

// newSide makes a worker on lanes with a number of slots.
func newSide(t *testing.T, lanes string, slots int) *side {
	t.Helper()
	return newNapper(t, lanes, slots, 0)
}

// newNapper is newSide with the longest time that a sleep of the thread lasts.
func newNapper(t *testing.T, lanes string, slots int, nap time.Duration) *side {
	t.Helper()
	s := &side{t: t, events: make(chan Event, 1<<14), taken: make(chan struct{})}
	var err error
	s.Worker, err = newWorker(Options{Settings: []Setting{{"TLS", lanes}, {"MAX_RNDV_RAILS", "1"}}, Slots: slots, Window: 16}, nap)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.taken)
		var events [8]Event
		for s.Wait() {
			s.hold.Lock()
			n := s.Events(events[:])
			for _, e := range events[:n] {
				s.events <- e
			}
			s.hold.Unlock()
		}
	}()
	return s
}

// join connects the worker to another.
func (s *side) join(to *side) {
	s.t.Helper()
	address, err := to.Address()
	if err == nil {
		err = s.Connect(address)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.Greet()
}

// memory is n bytes of registered memory, with a value in each.
func (s *side) memory(n int, value byte) (Memory, []byte) {
	s.t.Helper()
	m, err := s.Allocate(int64(n))
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

// patience is with what takes no time, on a machine that is busy with other things.
const patience = 30 * time.Second

// next takes the next event.
func (s *side) next() Event {
	s.t.Helper()
	select {
	case e := <-s.events:
		return e
	case <-time.After(patience):
		s.t.Fatalf("no event in %v", patience)
	}
	panic("unreachable")
}

// until waits for a condition that is to come true.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in %v: %s", patience, what)
		}
	}
}

// await takes the next event, which must be of a kind.
func (s *side) await(kind Kind) Event {
	s.t.Helper()
	e := s.next()
	if e.Kind != kind {
		s.t.Fatalf("event %+v (%s), want kind %d", e, StatusText(int(e.Status)), kind)
	}
	return e
}

// pair is two workers of this process, connected.
type pair struct{ a, b *side }

// meeting is such a pair, which the caller ends.
func meeting(t *testing.T, lanes string, slotsA, slotsB int) *pair {
	t.Helper()
	need(t)
	p := &pair{newSide(t, lanes, slotsA), newSide(t, lanes, slotsB)}
	p.a.join(p.b)
	p.b.join(p.a)
	p.a.await(Greeted)
	p.b.await(Greeted)
	return p
}

func connected(t *testing.T, lanes string, slotsA, slotsB int) *pair {
	t.Helper()
	p := meeting(t, lanes, slotsA, slotsB)
	t.Cleanup(p.part)
	return p
}

// part ends both, in step.
func (p *pair) part() {
	sides := []*side{p.a, p.b}
	for _, s := range sides {
		s.Stop()
	}
	for _, s := range sides {
		s.drain()
	}
	var wg sync.WaitGroup
	for _, s := range sides {
		wg.Go(s.end)
	}
	wg.Wait()
}

// drain stops a worker, waits until UCX holds nothing and returns what happened before.
func (s *side) drain() (before []Event) {
	s.Stop()
	for !s.idle {
		e := <-s.events
		s.idle = e.Kind == Idle
		before = append(before, e)
	}
	return before
}

// end lets go of everything.
func (s *side) end() {
	s.Interrupt()
	<-s.taken
	if !s.Settle() {
		s.t.Error("UCX holds something though it was idle")
	}
	if !s.Disconnect() {
		s.t.Error("UCX does not let the endpoint end")
		s.Retire()
		return
	}
	for _, m := range s.mapped {
		if err := s.Unmap(m); err != nil {
			s.t.Error(err)
		}
	}
	if !s.Free() {
		s.t.Error("UCX does not let the worker go")
	}
}

// abandon lets go of everything where the other side does not answer any more.
func (s *side) abandon() {
	s.Stop()
	s.Interrupt()
	<-s.taken
	s.Abandon()
	for _, m := range s.mapped {
		if err := s.Unmap(m); err != nil {
			s.t.Error(err)
		}
	}
	if !s.Free() {
		s.t.Error("UCX does not let the worker go")
	}
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
				p.b.OpenRegion(7, remote)
				key, err := p.a.Import(remote.Key)
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
				p.a.Submit(2)
				if op != Get {
					if e := p.a.await(Local); e.ID != 99 || e.Slot != 2 {
						t.Errorf("locally complete: %+v", e)
					}
				}
				e := p.a.await(Delivered)
				if e.ID != 99 || e.Slot != 2 || e.Bytes != size+61 || e.At < before || e.At > Clock() {
					t.Errorf("delivered: %+v, posted at %d", e, before)
				}
				kind := Written
				if op == Get {
					kind = Read
				}
				if e := p.b.await(kind); e.ID != 99 || e.Slot != 2 || e.Bytes != size+61 {
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
				p.b.OpenRegion(1, remote)
				p.b.OpenRegion(2, remote)
				p.b.CloseRegion(2)
				p.a.Pieces(c.slot, 1)[0] = Piece{Local: uint64(local.Address), Remote: c.offset, Length: c.length}
				p.a.Fill(c.slot, ActiveMessage, 1, int64(c.length), 1, local, Remote{}, c.region)
				p.a.Submit(c.slot)
				p.b.await(Violation)
				if bytes.Contains(there, []byte{1}) {
					t.Error("the message was written")
				}
				for len(p.a.events) > 0 {
					if e := <-p.a.events; e.Kind == Delivered {
						t.Errorf("the sender is told of delivery: %+v", e)
					}
				}
			})
		}
	}
}

// TestFetchedByHandle: what a long message brings is fetched with the handle of the region's
// memory, so that UCX need not register its place. UCX holds the two against each other:
// a handle of other memory is refused, and the sender waits for ever.
func TestFetchedByHandle(t *testing.T) {
	const size = 1 << 16
	for _, lanes := range lanesHere {
		t.Run(lanes, func(t *testing.T) {
			p := meeting(t, lanes, 1, 1)
			defer p.a.abandon()
			defer p.b.abandon()
			local, _ := p.a.memory(size, 1)
			remote, there := p.b.memory(size, 2)
			other, _ := p.b.memory(size, 3)
			wrong := remote
			wrong.handle = other.handle
			p.b.OpenRegion(1, wrong)
			p.a.Pieces(0, 1)[0] = Piece{Local: uint64(local.Address), Length: size}
			p.a.Fill(0, ActiveMessage, 1, size, 1, local, Remote{}, 1)
			p.a.Submit(0)
			if e := p.b.await(Ended); e.Status != -5 {
				t.Errorf("status %d (%s), want UCS_ERR_INVALID_PARAM, -5", e.Status, StatusText(int(e.Status)))
			}
			if bytes.Contains(there, []byte{1}) {
				t.Error("the message was written")
			}
		})
	}
}

// TestSlowReader: a reader that takes no events holds up the peer, as it does not
// acknowledge what nobody takes notice of; and goes on where it stopped. Meanwhile an
// acknowledgement of what is no longer posted is no delivery.
func TestSlowReader(t *testing.T) {
	const slots = 8192 // past what the ring and UCX's queues hold
	p := connected(t, "sm", slots, slots)
	local, _ := p.a.memory(64, 1)
	remote, _ := p.b.memory(64, 2)
	p.b.OpenRegion(1, remote)
	fill := func(slot int, id uint64) {
		p.a.Pieces(slot, 1)[0] = Piece{Local: uint64(local.Address), Length: 8}
		p.a.Fill(slot, ActiveMessage, id, 8, 1, local, Remote{}, 1)
	}
	p.b.hold.Lock()
	for slot := range slots {
		fill(slot, 1)
		p.a.Submit(slot)
	}
	p.b.holdsUp()
	p.a.hasSeenAll()
	delivered := make([]bool, slots)
	sent, unanswered := -1, slots
	for len(p.a.events) > 0 {
		if e := <-p.a.events; e.Kind == Delivered {
			delivered[e.Slot] = true
			unanswered--
		} else if e.Kind == Local {
			sent = int(e.Slot)
		}
	}
	if unanswered == 0 || delivered[sent] || p.b.waiting() != ringSize {
		t.Fatalf("%d of %d transfers are acknowledged, with %d events that nobody has taken", slots-unanswered, slots, p.b.waiting())
	}
	// The last slot that was sent is another transfer's before the acknowledgement is in.
	fill(sent, 2)
	p.b.hold.Unlock()
	violations := 0
	for unanswered > 1 || violations == 0 {
		select {
		case e := <-p.a.events:
			switch {
			case e.Kind == Delivered && int(e.Slot) == sent:
				t.Fatalf("what was never posted is delivered: %+v", e)
			case e.Kind == Delivered:
				unanswered--
			case e.Kind == Violation:
				violations++
			}
		case <-time.After(patience):
			t.Fatalf("%d transfers are not acknowledged, %d violations", unanswered, violations)
		}
	}
	if violations != 1 {
		t.Errorf("%d violations, want 1", violations)
	}
}

// holdsUp waits until the worker waits for its reader: the ring is full, and the thread
// sleeps again and again without a look at what the peer sends.
func (s *side) holdsUp() {
	s.t.Helper()
	last := s.counts()
	until(s.t, "the worker waits for its reader", func() bool {
		now := s.counts()
		if s.waiting() < ringSize || now.looks != last.looks {
			last = now
			return false
		}
		return now.dozes >= last.dozes+3
	})
}

// hasSeenAll waits until what a peer has sent that sends no more is in s.events: a few looks
// find nothing, and the reader is done.
func (s *side) hasSeenAll() {
	s.t.Helper()
	for moved := ^uint64(0); moved != s.Moved(); {
		moved = s.Moved()
		for enough := s.counts().looks + 3; s.counts().looks < enough; {
			if _, err := s.Address(); err != nil { // which wakes it
				s.t.Fatal(err)
			}
		}
	}
	until(s.t, "the reader takes what there is", func() bool {
		s.hold.Lock() // so that what it has taken is in the channel
		defer s.hold.Unlock()
		return s.waiting() == 0
	})
}

// TestSleep: a thread with nothing to do sleeps, wakes when the time of a sleep is over,
// looks once and sleeps again.
func TestSleep(t *testing.T) {
	p := connected(t, "sm", 1, 1)
	for name, s := range map[string]*side{"a": p.a, "b": p.b} {
		naps := func(n uint64) counts {
			enough := s.counts().naps + n
			until(t, "it sleeps", func() bool { return s.counts().naps >= enough })
			return s.counts()
		}
		const n = 3
		before := naps(1) // the last of connecting
		start := Clock()
		after := naps(n)
		took := time.Duration(Clock() - start)
		// The thread may have been read between two of its counts, at either end.
		if slept := after.naps - before.naps; after.dozes-before.dozes > slept+1 || after.looks-before.looks > slept+1 {
			t.Errorf("idle, %s counts %+v and then %+v", name, before, after)
		}
		// The first was under way. No sleep ends before its time.
		if took < (n-1)*100*time.Millisecond {
			t.Errorf("%d sleeps of %s took %v", n, name, took)
		}
	}
}

// TestWake: a call wakes a thread that sleeps. This one sleeps for longer than anybody
// waits, so that a wake-up that is lost is seen.
func TestWake(t *testing.T) {
	need(t)
	s := newNapper(t, "sm", 1, 10*patience)
	asleep := uint64(0)
	for i := range 100 {
		until(t, "it sleeps", func() bool { return s.counts().dozes > asleep })
		asleep = s.counts().dozes
		answered := make(chan error, 1)
		go func() {
			_, err := s.Address()
			answered <- err
		}()
		select {
		case err := <-answered:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(patience):
			t.Fatalf("call %d does not wake it", i)
		}
	}
	s.Interrupt()
	<-s.taken
	if !s.Free() {
		t.Error("UCX does not let the worker go")
	}
}

// TestInterrupt ends a wait that is under way, and one that is to come.
func TestInterrupt(t *testing.T) {
	need(t)
	s := newSide(t, "sm", 1)
	until(t, "it waits", func() bool { return atomic.LoadUint32((*uint32)(&s.ring.listening)) == 1 })
	s.Interrupt()
	select {
	case <-s.taken:
	case <-time.After(patience):
		t.Fatal("it goes on waiting")
	}
	if s.Wait() {
		t.Error("there are events after the end")
	}
	if !s.Free() {
		s.t.Error("UCX does not let the worker go")
	}
}

// TestFewDescriptors: where there are too few for UCX, which would end the process, each
// call that starts it says so.
func TestFewDescriptors(t *testing.T) {
	need(t)
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	few := limit
	few.Cur = uint64(len(open) + 8)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	_, errWorker := NewWorker(Options{Slots: 1, Window: 1})
	_, errSurvey := Survey()
	_, errTypes := TypesOf(nil)
	for call, err := range map[string]error{"NewWorker": errWorker, "Survey": errSurvey, "TypesOf": errTypes} {
		var e *Error
		if !errors.As(err, &e) || e.Status != StatusNoResource || !strings.Contains(e.Message, "ulimit -n") {
			t.Errorf("%s: %v", call, err)
		}
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
	if err := p.a.Connect(nil); err == nil {
		t.Error("an empty address connects")
	}
	if _, err := p.a.Import(nil); err == nil {
		t.Error("an empty key is imported")
	}
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

// TestMemoryType: UCX learns what kind of memory it is given, and tells the peer's UCX
// of it in the key.
func TestMemoryType(t *testing.T) {
	p := connected(t, "tcp", 1, 1)
	_, b := p.a.memory(4096, 1)
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	var keys [][]byte
	for _, kind := range []MemoryType{HostMemory, CUDAMemory} {
		m, err := p.a.Map(at, int64(len(b)), kind)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, m.Key)
		if err := p.a.Unmap(m); err != nil {
			t.Error(err)
		}
	}
	if bytes.Equal(keys[0], keys[1]) {
		t.Errorf("one key, %x, for memory of the host and of a GPU", keys[0])
	}
}

func TestTypesOf(t *testing.T) {
	need(t)
	types, err := TypesOf([]Setting{{"TLS", "tcp"}})
	if err != nil || !types.Has(HostMemory) || types.Has(CUDAMemory) { // over TCP alone, whatever UCX was built with
		t.Errorf("types %#x, %v", types, err)
	}
	var e *Error
	if _, err := TypesOf([]Setting{{"TLS", "no_such_lane"}}); !errors.As(err, &e) || e.Call != "ucp_init" || e.Status != StatusNoDevice {
		t.Errorf("a lane that UCX has not: %v", err)
	}
}
