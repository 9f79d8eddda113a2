package transporttest

import (
	"math/rand/v2"

	"github.com/zeebo/xxh3"

	"kvbench/transport"
)

// pair is a connected initiator and target with one region each.
type pair struct {
	*check
	initiator     transport.Initiator
	target        transport.Target
	local, remote *buffer
	localRegion   transport.Region
	targetRegion  transport.Region
	remoteRegion  transport.RemoteRegion
	lastID        uint64
}

// listen opens a listener and closes it at the end of the case.
func (k *check) listen() transport.Listener {
	l, err := k.Listener.Listen(k.ctx, k.Config)
	k.must(err, "Listen")
	k.cleanup(func() { l.Close() })
	return l
}

// connect makes a pair with regions of size bytes, filled with different noise.
func (k *check) connect(size int) *pair {
	l := k.listen()
	return k.connectTo(l, size)
}

func (k *check) connectTo(l transport.Listener, size int) *pair {
	p := &pair{check: k}
	p.local, p.remote = k.alloc(k.initiatorMemory(), noise(size, 1)), k.alloc(k.targetMemory(), noise(size, 2))
	var err error
	accepted := make(chan error, 1)
	if k.reversed {
		go func() {
			var err error
			p.initiator, err = l.AcceptInitiator(k.ctx)
			accepted <- err
		}()
		p.target, err = k.Dialer.DialTarget(k.ctx, l.Address(), k.Config)
		k.must(err, "DialTarget")
		k.must(<-accepted, "AcceptInitiator")
	} else {
		go func() {
			var err error
			p.target, err = l.AcceptTarget(k.ctx)
			accepted <- err
		}()
		p.initiator, err = k.Dialer.Dial(k.ctx, l.Address(), k.Config)
		k.must(err, "Dial")
		k.must(<-accepted, "AcceptTarget")
	}
	k.cleanup(func() { p.initiator.Close(); p.target.Close() })
	p.localRegion, err = p.initiator.Register(p.local.Memory())
	k.must(err, "Register at the initiator")
	p.targetRegion, err = p.target.Register(p.remote.Memory())
	k.must(err, "Register at the target")
	p.remoteRegion = p.share(p.targetRegion)
	return p
}

// initiatorMemory and targetMemory return the allocators of the sides with those roles.
func (k *check) initiatorMemory() Allocator {
	if k.reversed {
		return k.ListenerMemory
	}
	return k.DialerMemory
}

func (k *check) targetMemory() Allocator {
	if k.reversed {
		return k.DialerMemory
	}
	return k.ListenerMemory
}

// share advertises a region of the target and imports it at the initiator.
func (p *pair) share(r transport.Region) transport.RemoteRegion {
	ad, err := p.target.Advertise(r)
	p.must(err, "Advertise")
	remote, err := p.initiator.Import(ad)
	p.must(err, "Import")
	if len(remote) != 1 || remote[0].Size != r.Size {
		p.fatalf("Import of one region of %d bytes: got %+v", r.Size, remote)
	}
	return remote[0]
}

// transfer returns a transfer over the pair's regions with a new ID.
func (p *pair) transfer(descs ...transport.Descriptor) transport.Transfer {
	p.lastID++
	return transport.Transfer{ID: p.lastID<<32 | 7, Op: p.op, Local: p.localRegion, Remote: p.remoteRegion, Descriptors: descs}
}

// post posts and expects no error.
func (p *pair) post(t transport.Transfer) { p.must(p.initiator.Post(t), "Post") }

// await polls until n transfers have ended and returns every completion in order. If
// there are more, it ends the case, because bytes may then be in flight after their
// completion.
func (p *pair) await(n int) []transport.Completion {
	var all []transport.Completion
	var buf [8]transport.Completion
	for n > 0 {
		got, err := p.initiator.Poll(buf[:])
		for _, c := range buf[:got] {
			all = append(all, c)
			if c.Stage == transport.Delivered {
				n--
			}
		}
		if n < 0 {
			p.fatalf("%d completions too many: %+v", -n, all)
		}
		if got > 0 {
			continue
		}
		p.must(err, "Poll")
		if err := p.initiator.Wait(p.ctx); err != nil {
			p.fatalf("Wait with %d transfers outstanding: %v", n, err)
		}
	}
	return all
}

// notices returns the next n notices of the target.
func (p *pair) notices(n int) []transport.Notice {
	all := make([]transport.Notice, 0, n)
	for len(all) < n {
		buf := make([]transport.Notice, n-len(all))
		got, err := p.target.Notifications(p.ctx, buf)
		if err != nil {
			p.fatalf("Notifications after %d of %d: %v", len(all), n, err)
		}
		all = append(all, buf[:got]...)
	}
	return all
}

// source and destination return the memory that the pair's operation reads and writes.
func (p *pair) source() *buffer {
	if p.op == transport.Read {
		return p.remote
	}
	return p.local
}

func (p *pair) destination() *buffer {
	if p.op == transport.Read {
		return p.local
	}
	return p.remote
}

// expect returns the destination's content after the transfer of the descriptors, given
// the current content of both sides.
func (p *pair) expect(descs []transport.Descriptor) []byte {
	want, source := p.destination().bytes(), p.source().bytes()
	for _, d := range descs {
		from, to := d.Local, d.Remote
		if p.op == transport.Read {
			from, to = to, from
		}
		copy(want[to:to+d.Length], source[from:from+d.Length])
	}
	return want
}

// move makes one transfer and checks its bytes, completion, times and notice.
func (p *pair) move(descs ...transport.Descriptor) {
	want := p.expect(descs)
	sum := xxh3.Hash(want)
	var size int64
	for _, d := range descs {
		size += d.Length
	}
	t := p.transfer(descs...)
	before := transport.Now()
	p.post(t)
	c := p.await(1)[0]
	if c.ID != t.ID {
		p.fatalf("completion %+v, where transfer %#x alone was outstanding", c, t.ID)
	}
	// Read straight after the completion, so that late bytes are detected.
	if got := p.destination().bytes(); xxh3.Hash(got) != sum {
		p.errorf("%v of %d bytes in %d descriptors: %s", p.op, size, len(descs), firstDifference(got, want))
	}
	after := transport.Now()
	if c.ID != t.ID || c.Bytes != size || c.Err != nil || c.Stage != transport.Delivered {
		p.errorf("completion %+v of transfer %#x of %d bytes", c, t.ID, size)
	}
	if c.Local < before || c.Delivered < c.Local || c.Delivered > after {
		p.errorf("times out of order: posted after %v, local %v, delivered %v, polled before %v", before, c.Local, c.Delivered, after)
	}
	n := p.notices(1)[0]
	if n.ID != t.ID || n.Op != p.op || n.Bytes != size {
		p.errorf("notice %+v of %v %#x of %d bytes", n, p.op, t.ID, size)
	}
}

// noise returns n pseudo-random bytes.
func noise(n int, seed uint64) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(n), byte(n >> 8)})
	r.Read(b)
	return b
}
