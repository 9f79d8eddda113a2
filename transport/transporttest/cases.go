package transporttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"kvbench/transport"
)

// full returns long if every case runs, and short otherwise: how much of something a case
// takes. Both cross the same edges, the short one with fewer bytes or rounds.
func (k *check) full(long, short int) int {
	if k.All {
		return long
	}
	return short
}

// bodies lists the cases that run for every operation of the transport.
var bodies = []struct {
	name string
	body func(*check)
}{
	{"Sizes", testSizes},
	{"ScatterGather", testScatterGather},
	{"Outstanding", testOutstanding},
	{"QueueFull", testQueueFull},
	{"BackToBack", testBackToBack},
	{"SourceReuse", testSourceReuse},
	{"ReportLocalAtDelivery", testReportLocal},
	{"PostDuringWait", testPostDuringWait},
	{"Bounds", testBounds},
	{"Regions", testRegions},
	{"DeregisterBusy", testDeregisterBusy},
	{"DeregisterAtTarget", testDeregisterAtTarget},
	{"CloseBusy", testCloseBusy},
	{"TargetDies", testTargetDies},
	{"InitiatorDies", testInitiatorDies},
	{"Cancel", testCancel},
	{"Connections", testConnections},
	{"Path", testPath},
}

// permutation is what a body runs with: an operation, and the side that dials.
type permutation struct {
	op transport.Op
	// reversed: the target dials and the initiator is accepted.
	reversed bool
}

// permutations are those of the body with number i: see All and Part.
func (s Subject) permutations(ops []transport.Op, i int) (all []permutation) {
	var parts []int
	switch {
	case s.All:
		parts = []int{0, 1, 2, 3}
	case s.Part == 0:
		parts = []int{0, 1}[:len(ops)]
	default:
		parts = []int{s.Part - 1}
	}
	for _, part := range parts {
		all = append(all, permutation{ops[(i+part)%len(ops)], (i/2+part+part/2)%2 == 1})
	}
	return all
}

// cases lists the suite for a subject.
func cases(s Subject) []testCase {
	var all []testCase
	var ops []transport.Op
	can := s.Listener.Capabilities()
	for _, op := range []transport.Op{transport.Write, transport.Read} {
		if (op == transport.Write && can.Write || op == transport.Read && can.Read) && (s.Only == 0 || s.Only == op) {
			ops = append(ops, op)
		}
	}
	for _, op := range []transport.Op{transport.Write, transport.Read} {
		for _, reversed := range []bool{false, true} {
			dials := "InitiatorDials"
			if reversed {
				dials = "TargetDials"
			}
			p := permutation{op, reversed}
			name := func(s string) string { return fmt.Sprintf("%v/%s/%s", op, dials, s) }
			if !slices.Contains(ops, op) {
				all = append(all, testCase{name("Unsupported"), p, testUnsupported})
				continue
			}
			for i, b := range bodies {
				if slices.Contains(s.permutations(ops, i), p) {
					all = append(all, testCase{name(b.name), p, b.body})
				}
			}
		}
	}
	return append(all,
		testCase{name: "Identity", body: testIdentity},
		testCase{name: "ListenerClosed", body: testListenerClosed},
		testCase{name: "WrongAddress", body: testWrongAddress},
	)
}

func testSizes(k *check) {
	page := os.Getpagesize()
	small := []int{0, 1, 7, page - 1, page, page + 1, 64<<10 + 3}
	// The last takes several chunks of any transport that cuts transfers up.
	large := []int{1 << 20, k.full(9<<20+5, 4<<20+5)}
	if k.All {
		small, large = nil, append(small, large...)
	}
	moveSizes(k, small)
	moveSizes(k, large)
}

// moveSizes moves transfers of growing sizes between regions that fit the last one.
func moveSizes(k *check, sizes []int) {
	if len(sizes) == 0 {
		return
	}
	const margin = 512
	p := k.connect(sizes[len(sizes)-1] + 2*margin)
	for i, size := range sizes {
		// The offsets differ on each side, so that a transport that confuses them fails.
		p.move(transport.Descriptor{Local: int64(i), Remote: margin, Length: int64(size)})
	}
}

// pieces returns count descriptors of up to size bytes, in a different order on each
// side, and the bytes that they span.
func pieces(count, size int, r *rand.Rand) (descs []transport.Descriptor, span int) {
	order := r.Perm(count)
	for i, j := range order {
		descs = append(descs, transport.Descriptor{
			Local: int64(i * size), Remote: int64(j * size), Length: int64(r.IntN(size + 1)),
		})
	}
	descs[count/2].Length = 0
	return descs, count * size
}

func testScatterGather(k *check) {
	r := rand.New(rand.NewPCG(1, 2))
	var p *pair
	for _, shape := range []struct{ count, size int }{
		{1023, k.full(4096, 512)}, {2, 64}, {1000, 100}, {1024, 1}, {1025, 64}, {5000, k.full(700, 70)},
	} {
		descs, span := pieces(shape.count, shape.size, r)
		if p == nil || k.All {
			p = k.connect(span) // the first is the largest
		}
		p.move(descs...)
	}
	if k.All {
		p = k.connect(8 << 10)
	}
	// Equal lengths whose places could be exchanged unnoticed by a count.
	p.move(transport.Descriptor{Local: 0, Remote: 4096, Length: 4096}, transport.Descriptor{Local: 4096, Remote: 0, Length: 4096})
}

func testOutstanding(k *check) {
	size := k.full(200_003, 70_001) // no multiple of a page, and more than one of 64 KiB
	p := k.connect(outstanding * size)
	var all []transport.Descriptor
	for i := range outstanding {
		all = append(all, transport.Descriptor{Local: int64(i * size), Remote: int64((outstanding - 1 - i) * size), Length: int64(size)})
	}
	want := p.expect(all)
	posted := make(map[uint64]bool)
	for i := range all {
		t := p.transfer(all[i])
		posted[t.ID] = true
		p.post(t)
	}
	for _, c := range p.await(outstanding) {
		if !posted[c.ID] || c.Err != nil {
			p.fatalf("completion %+v: not outstanding, or failed", c)
		}
		delete(posted, c.ID)
	}
	if got := p.destination().bytes(); !bytes.Equal(got, want) {
		p.errorf("after %d transfers: %s", outstanding, firstDifference(got, want))
	}
	seen := make(map[uint64]bool)
	for _, n := range p.notices(outstanding) {
		if seen[n.ID] || n.Bytes != int64(size) {
			p.errorf("notice %+v: repeated, or of another size", n)
		}
		seen[n.ID] = true
	}
	p.quiet()
}

// probe is the descriptor that quiet moves.
var probe = transport.Descriptor{Length: 1}

// quiet reports an error for a completion without a post. Such a completion would come
// before the completion of the transfer that quiet posts.
func (p *pair) quiet() {
	t := p.transfer(probe)
	p.post(t)
	for _, c := range p.await(1) {
		if c.ID != t.ID || c.Stage != transport.Delivered || c.Err != nil {
			p.errorf("completion %+v, where transfer %#x alone was outstanding", c, t.ID)
		}
	}
	p.notices(1)
	var buf [4]transport.Completion
	if n, err := p.initiator.Poll(buf[:]); n != 0 || err != nil {
		p.errorf("Poll with nothing outstanding: %+v, error %v", buf[:n], err)
	}
}

func testQueueFull(k *check) {
	p := k.connect(1 << 20)
	full := false
	for range outstanding {
		p.post(p.transfer(transport.Descriptor{Length: 1 << 20}))
	}
	// Nothing is polled, so every slot stays taken, delivered or not.
	if err := p.initiator.Post(p.transfer()); errors.Is(err, transport.ErrQueueFull) {
		full = true
	} else {
		p.errorf("Post of one too many: got error %v, want ErrQueueFull", err)
	}
	p.await(outstanding)
	p.notices(outstanding) // with notices waiting, a target may delay its initiator
	if full {
		p.post(p.transfer(transport.Descriptor{Length: 1}))
		p.await(1)
	}
}

func testBackToBack(k *check) {
	p := k.connect(k.full(1<<16, 1<<12))
	for i := range k.full(300, 100) {
		// New bytes each time at the same place: yesterday's must not do.
		p.source().write(noise(512, uint64(i)), 0)
		p.source().write([]byte{byte(i)}, 600)
		p.move(transport.Descriptor{Local: 0, Remote: 0, Length: 601})
	}
}

func testSourceReuse(k *check) {
	if k.op != transport.Write {
		return // the target must not reuse a READ's source before the notice
	}
	size := k.full(3<<20+1, 1<<20+1)
	p := k.connect(size)
	for round := range 4 {
		p.local.write(noise(size, uint64(10+round)), 0)
		d := transport.Descriptor{Length: int64(size)}
		want := p.expect([]transport.Descriptor{d})
		t := p.transfer(d)
		t.ReportLocal = true
		p.post(t)
		var stages []transport.Stage
		var buf [4]transport.Completion
		for len(stages) == 0 || stages[len(stages)-1] != transport.Delivered {
			n, err := p.initiator.Poll(buf[:1])
			p.must(err, "Poll")
			if n == 0 {
				p.must(p.initiator.Wait(p.ctx), "Wait")
				continue
			}
			if buf[0].Err != nil {
				p.fatalf("completion %+v", buf[0])
			}
			if buf[0].Stage == transport.LocallyComplete {
				p.local.write(make([]byte, size), 0)
			}
			stages = append(stages, buf[0].Stage)
		}
		if len(stages) != 2 || stages[0] != transport.LocallyComplete {
			p.errorf("stages %v, want local completion and then delivery", stages)
		}
		if got := p.remote.bytes(); !bytes.Equal(got, want) {
			p.errorf("source overwritten after local completion: %s", firstDifference(got, want))
		}
	}
}

func testReportLocal(k *check) {
	p := k.connect(4096)
	p.move(transport.Descriptor{Length: 4096}) // without ReportLocal, move expects one completion
	p.quiet()
}

// testPostDuringWait ends a Wait with a transfer that is posted during it. If Wait
// starts late, it finds the transfer posted, which must work too. The pause makes that
// rare.
func testPostDuringWait(k *check) {
	p := k.connect(4096)
	for range 20 {
		about, waited := make(chan struct{}), make(chan error, 1)
		go func() {
			close(about)
			waited <- p.initiator.Wait(k.ctx)
		}()
		<-about
		time.Sleep(time.Millisecond)
		p.post(p.transfer(transport.Descriptor{Length: 4096}))
		p.must(<-waited, "Wait with a transfer posted meanwhile")
		p.await(1)
		p.notices(1)
	}
}

func testBounds(k *check) {
	const size = 4096
	if !k.All && k.Config.MaxDescriptors == 0 {
		k.Config.MaxDescriptors = 1000 // the default is a million, which take long to make and to refuse
	}
	p := k.connect(size)
	wantSource, wantDestination := p.source().bytes(), p.expect([]transport.Descriptor{probe})
	for _, d := range []transport.Descriptor{
		{Local: 0, Remote: 0, Length: size + 1},
		{Local: 1, Remote: 0, Length: size},
		{Local: 0, Remote: 1, Length: size},
		{Local: size + 1, Remote: 0, Length: 0},
		{Local: -1, Remote: 0, Length: 2},
		{Local: 0, Remote: -1, Length: 2},
		{Local: 0, Remote: 0, Length: -1},
		{Local: math.MaxInt64, Remote: 0, Length: 2},
		{Local: 0, Remote: math.MaxInt64 - 1, Length: 2},
		{Local: 2, Remote: 2, Length: math.MaxInt64},
	} {
		k.wants(p.initiator.Post(p.transfer(transport.Descriptor{Length: 1}, d)), transport.ErrBounds, fmt.Sprintf("Post of %+v in regions of %d", d, size))
	}
	tooMany := make([]transport.Descriptor, k.Config.WithDefaults().MaxDescriptors+1)
	k.wants(p.initiator.Post(p.transfer(tooMany...)), transport.ErrBounds, "Post of more than MaxDescriptors")
	p.quiet()
	if !bytes.Equal(p.source().bytes(), wantSource) || !bytes.Equal(p.destination().bytes(), wantDestination) {
		p.errorf("a refused transfer moved bytes")
	}
	p.move(transport.Descriptor{Length: size}) // the connection still works
}

func testRegions(k *check) {
	p := k.connect(1 << 12)
	// With a second region on either side, bytes must go to the named region.
	local, remote := k.alloc(k.initiatorMemory(), noise(1<<12, 5)), k.alloc(k.targetMemory(), noise(1<<12, 6))
	lr, err := p.initiator.Register(local.Memory())
	k.must(err, "Register")
	rr, err := p.target.Register(remote.Memory())
	k.must(err, "Register")
	remoteRegion := p.share(rr)
	first, second := p.destination().bytes(), []byte(nil)
	t := p.transfer(transport.Descriptor{Local: 8, Remote: 16, Length: 1000})
	t.Local, t.Remote = lr, remoteRegion
	if p.op == transport.Write {
		second = remote.bytes()
		copy(second[16:1016], local.bytes()[8:1008])
	} else {
		second = local.bytes()
		copy(second[8:1008], remote.bytes()[16:1016])
	}
	p.post(t)
	p.await(1)
	p.notices(1)
	got, untouched := remote.bytes(), p.destination().bytes()
	if p.op == transport.Read {
		got = local.bytes()
	}
	if !bytes.Equal(got, second) || !bytes.Equal(untouched, first) {
		p.errorf("transfer between second regions: %s; first region: %s", firstDifference(got, second), firstDifference(untouched, first))
	}
	if again := p.share(rr); again != remoteRegion {
		p.errorf("a region that is imported again is %+v, and was %+v", again, remoteRegion)
	}
	// Deregistration.
	k.must(p.initiator.Deregister(lr), "Deregister")
	k.wants(p.initiator.Deregister(lr), transport.ErrRegion, "second Deregister")
	k.wants(p.initiator.Post(t), transport.ErrRegion, "Post from a deregistered region")
	t.Local, t.Remote = p.localRegion, transport.RemoteRegion{ID: 1 << 30, Size: 1 << 12}
	k.wants(p.initiator.Post(t), transport.ErrRegion, "Post to a region that was never imported")
	if _, err := p.target.Advertise(transport.Region{ID: 1 << 30, Size: 1}); !errors.Is(err, transport.ErrRegion) {
		k.errorf("Advertise of an unknown region: got error %v, want ErrRegion", err)
	}
	if _, err := p.initiator.Import(transport.Advertisement("\xff not an advertisement")); err == nil {
		k.errorf("Import of nonsense succeeded")
	}
	k.wants(registerError(p.initiator, transport.Memory{Kind: "tape"}), transport.ErrUnsupported, "Register of an unknown kind of memory")
	p.move(transport.Descriptor{Length: 1 << 12})
}

func registerError(e transport.Endpoint, m transport.Memory) error {
	_, err := e.Register(m)
	return err
}

func testDeregisterBusy(k *check) {
	size := k.full(32<<20, 8<<20)
	p := k.connect(size)
	p.post(p.transfer(transport.Descriptor{Length: int64(size)}))
	err := p.initiator.Deregister(p.localRegion)
	if err == nil {
		// Success is allowed only if the transfer had already ended.
		var buf [1]transport.Completion
		if n, _ := p.initiator.Poll(buf[:]); n == 0 {
			k.errorf("Deregister succeeded under an outstanding transfer")
		}
		return
	}
	k.wants(err, transport.ErrBusy, "Deregister under an outstanding transfer")
	p.await(1)
	k.must(p.initiator.Deregister(p.localRegion), "Deregister after delivery")
}

func testDeregisterAtTarget(k *check) {
	p := k.connect(1 << 16)
	p.move(transport.Descriptor{Length: 1 << 16})
	k.must(p.target.Deregister(p.targetRegion), "Deregister at the target")
	defer p.remote.free() // the owner may free it from here on
	want := p.destination().bytes()
	p.source().write(noise(1<<16, 99), 0)
	if err := p.initiator.Post(p.transfer(transport.Descriptor{Length: 1 << 16})); err != nil {
		return // an immediate refusal is also correct
	}
	c := p.await(1)[0]
	if c.Err == nil {
		k.errorf("transfer with a region that the target deregistered was delivered")
	}
	k.wants(c.Err, transport.ErrPeer, "transfer with a region that the target deregistered")
	if got := p.destination().bytes(); !bytes.Equal(got, want) {
		k.errorf("transfer with a region that the target deregistered moved bytes: %s", firstDifference(got, want))
	}
}

func testUnsupported(k *check) {
	p := k.connect(4096)
	k.wants(p.initiator.Post(p.transfer(transport.Descriptor{Length: 1})), transport.ErrUnsupported, "Post")
}

// collect polls until every transfer of ids has ended once, or the case's time is up.
func (p *pair) collect(ids map[uint64]bool, doing string) (failed []error) {
	var buf [8]transport.Completion
	for len(ids) > 0 {
		n, err := p.initiator.Poll(buf[:])
		for _, c := range buf[:n] {
			if c.Stage != transport.Delivered {
				continue
			}
			if !ids[c.ID] {
				p.errorf("%s: completion %+v comes twice or was never posted", doing, c)
			}
			delete(ids, c.ID)
			if c.Err != nil {
				failed = append(failed, c.Err)
			}
		}
		if n > 0 {
			continue
		}
		if err != nil {
			p.fatalf("%s: Poll says %v with %d transfers unaccounted for", doing, err, len(ids))
		}
		if err := p.initiator.Wait(p.ctx); err != nil {
			p.fatalf("%s: Wait: %v with %d transfers unaccounted for", doing, err, len(ids))
		}
	}
	return failed
}

// busy posts many large transfers and returns their IDs.
func (p *pair) busy() map[uint64]bool {
	ids := make(map[uint64]bool)
	for range 32 {
		t := p.transfer(transport.Descriptor{Length: int64(p.local.size)})
		ids[t.ID] = true
		p.post(t)
	}
	return ids
}

func testCloseBusy(k *check) {
	p := k.connect(k.full(8<<20, 2<<20))
	ids := p.busy()
	k.must(p.initiator.Close(), "Close")
	p.local.free()
	for _, err := range p.collect(ids, "after Close") {
		k.wants(err, transport.ErrClosed, "outstanding transfer after Close")
	}
	k.wants(p.initiator.Post(p.transfer()), transport.ErrClosed, "Post after Close")
	var buf [1]transport.Completion
	_, err := p.initiator.Poll(buf[:])
	k.wants(err, transport.ErrClosed, "Poll after Close")
	k.must(p.initiator.Wait(k.ctx), "Wait after Close")
	k.must(p.initiator.Close(), "second Close")
	k.wants(registerError(p.initiator, transport.HostBytes(nil)), transport.ErrClosed, "Register after Close")
}

func testTargetDies(k *check) {
	p := k.connect(k.full(8<<20, 2<<20))
	ids := p.busy()
	k.must(p.target.Close(), "Close of the target")
	p.remote.free()
	for _, err := range p.collect(ids, "after the target's end") {
		k.wants(err, transport.ErrPeer, "outstanding transfer after the target's end")
	}
	k.wants(p.eventually(), transport.ErrPeer, "Post after the target's end")
	k.must(p.target.Close(), "second Close of the target")
	var notices [1]transport.Notice
	for {
		if _, err := p.target.Notifications(k.ctx, notices[:]); err != nil {
			k.wants(err, transport.ErrClosed, "Notifications after Close")
			return
		}
	}
}

// eventually posts until the initiator has noticed that the connection is gone. It
// returns Post's error.
func (p *pair) eventually() error {
	var buf [8]transport.Completion
	for p.ctx.Err() == nil {
		if err := p.initiator.Post(p.transfer()); err != nil && !errors.Is(err, transport.ErrQueueFull) {
			return err
		}
		p.initiator.Poll(buf[:])
		time.Sleep(time.Millisecond)
	}
	return errors.New("every Post succeeded")
}

// testInitiatorDies closes initiators right after their last delivery. Notices of
// delivered writes must still arrive. Notices of reads come from the initiator and may be
// lost with it.
func testInitiatorDies(k *check) {
	const transfers = 32
	for range k.full(8, 2) {
		p := k.connect(4096)
		p.move(transport.Descriptor{Length: 4096})
		for range transfers {
			p.post(p.transfer(transport.Descriptor{Length: 4096}))
		}
		p.await(transfers)
		k.must(p.initiator.Close(), "Close of the initiator")
		if p.op == transport.Write {
			p.notices(transfers)
		}
		var err error
		for told := 0; err == nil && told <= transfers; told++ {
			var notices [1]transport.Notice
			_, err = p.target.Notifications(k.ctx, notices[:])
		}
		k.wants(err, transport.ErrPeer, "Notifications after the initiator's end")
	}
}

func testCancel(k *check) {
	l := k.listen()
	p := k.connect(4096)
	for _, c := range []struct {
		name string
		call func(context.Context) error
	}{
		{"AcceptTarget with nobody there", func(ctx context.Context) error {
			_, err := l.AcceptTarget(ctx)
			return err
		}},
		{"AcceptInitiator with nobody there", func(ctx context.Context) error {
			_, err := l.AcceptInitiator(ctx)
			return err
		}},
		{"Wait with nothing outstanding", p.initiator.Wait},
		{"Notifications with nothing delivered", func(ctx context.Context) error {
			_, err := p.target.Notifications(ctx, make([]transport.Notice, 1))
			return err
		}},
	} {
		// The first call waits when the context ends. The second gets an ended context.
		ctx, cancel := context.WithTimeout(k.ctx, 5*time.Millisecond)
		k.wants(c.call(ctx), context.DeadlineExceeded, c.name)
		k.wants(c.call(ctx), context.DeadlineExceeded, c.name+" and an ended context")
		cancel()
	}
	ended, cancel := context.WithCancel(k.ctx)
	cancel()
	if _, err := k.Dialer.Dial(ended, l.Address(), k.Config); err == nil {
		k.errorf("Dial with an ended context succeeded")
	}
	p.move(transport.Descriptor{Length: 4096}) // the connection still works
}

func testConnections(k *check) {
	l := k.listen()
	var pairs []*pair
	for range k.full(4, 3) {
		pairs = append(pairs, k.connectTo(l, 1<<16))
	}
	k.must(l.Close(), "Close of the listener")
	var wg sync.WaitGroup
	for i, p := range pairs {
		wg.Go(func() {
			for j := range 20 {
				p.source().write(noise(1<<10, uint64(100*i+j)), 0)
				p.move(transport.Descriptor{Local: 0, Remote: int64(i), Length: 1 << 15})
			}
		})
	}
	wg.Wait()
}

func testPath(k *check) {
	p := k.connect(4096)
	p.move(transport.Descriptor{Length: 4096})
	for _, e := range []transport.Endpoint{p.initiator, p.target} {
		if path := e.Path(); path.Lane == "" {
			k.errorf("Path after a transfer names no lane: %+v", path)
		}
	}
}

func testIdentity(k *check) {
	can := k.Listener.Capabilities()
	if k.Listener.Name() == "" || k.Listener.Name() != k.Dialer.Name() {
		k.errorf("names %q and %q", k.Listener.Name(), k.Dialer.Name())
	}
	if !can.Write && !can.Read || len(can.Memory) == 0 {
		k.errorf("capabilities without an operation, or without memory: %+v", can)
	}
}

func testListenerClosed(k *check) {
	l := k.listen()
	addr := l.Address()
	// The listener closes while the call waits, or before it if this goroutine is slow.
	// Both must work.
	time.AfterFunc(10*time.Millisecond, func() { l.Close() })
	_, err := l.AcceptTarget(k.ctx)
	k.wants(err, transport.ErrClosed, "AcceptTarget of a listener that closes")
	_, err = l.AcceptInitiator(k.ctx)
	k.wants(err, transport.ErrClosed, "AcceptInitiator of a closed listener")
	if _, err := k.Dialer.Dial(k.ctx, addr, k.Config); err == nil {
		k.errorf("Dial of a closed listener succeeded")
	}
	if _, err := k.Dialer.DialTarget(k.ctx, addr, k.Config); err == nil {
		k.errorf("DialTarget of a closed listener succeeded")
	}
}

func testWrongAddress(k *check) {
	for _, addr := range []transport.Address{nil, transport.Address("{}"), transport.Address("nonsense"), transport.Address(`{"host_port":"127.0.0.1:1","secret":""}`)} {
		if _, err := k.Dialer.Dial(k.ctx, addr, k.Config); err == nil {
			k.errorf("Dial of address %q succeeded", addr)
		}
	}
}

// firstDifference describes the first difference between two buffers.
func firstDifference(got, want []byte) string {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Sprintf("byte %d of %d is %#02x, want %#02x", i, len(want), got[i], want[i])
		}
	}
	return fmt.Sprintf("%d bytes, want %d", len(got), len(want))
}
