package rdma

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"kvbench/internal/rendezvous"
	"kvbench/internal/testenv"
	"kvbench/internal/ucx"
	"kvbench/transport"
)

// needUCX skips a test where UCX is not there, and fails it if KVBENCH_REQUIRE
// names rdma.
func needUCX(t *testing.T) {
	t.Helper()
	if err := New().Probe(t.Context()); err != nil {
		testenv.Skip(t, "rdma", err.Error())
	}
}

// sockets is a rendezvous that has taken place: this side's end, and the bare
// socket of a peer that says what it likes.
func sockets(t *testing.T) (*rendezvous.Conn, net.Conn) {
	t.Helper()
	l, err := rendezvous.Listen(t.Context(), "127.0.0.1:0", "", patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	var address struct {
		HostPort string `json:"host_port"`
		Secret   []byte `json:"secret"`
	}
	if err := json.Unmarshal(l.Address(), &address); err != nil {
		t.Fatal(err)
	}
	peer, err := net.Dial("tcp", address.HostPort)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { peer.Close() })
	say(t, peer, map[string]any{"version": 1, "secret": address.Secret, "role": "initiator", "hello": struct{}{}})
	caller, err := l.Accept(t.Context(), rendezvous.Initiator)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := caller.Answer(struct{}{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	heard(t, peer) // the answer
	return conn, peer
}

// say sends a frame.
func say(t *testing.T, c net.Conn, v any) {
	t.Helper()
	b, err := json.Marshal(v)
	if err == nil {
		_, err = c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// heard reads a frame.
func heard(t *testing.T, c net.Conn) (m message) {
	t.Helper()
	c.SetDeadline(time.Now().Add(patience))
	var size [4]byte
	if _, err := c.Read(size[:]); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := c.Read(b); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatalf("%v in %q", err, b)
	}
	return m
}

// listening is a connection of which only the socket is there.
func listening(t *testing.T, hear func(message) error) (*connection, net.Conn) {
	t.Helper()
	socket, peer := sockets(t)
	c := &connection{
		socket: socket, greeted: make(chan struct{}, 1),
		drained: make(chan struct{}), closing: make(chan struct{}), dead: make(chan struct{}),
	}
	go c.listen(hear)
	t.Cleanup(func() {
		peer.Close()
		<-c.drained
	})
	return c, peer
}

// TestSocket: what a peer says on the socket ends the connection with the right
// error, or not at all.
func TestSocket(t *testing.T) {
	refuse := func(message) error { return errors.New("not that") }
	for _, c := range []struct {
		name string
		say  string // frames
		hear func(message) error
		want error
		says string
	}{
		{"it ends", frameOf(`{"ending":true}`), nil, transport.ErrPeer, "it ended the connection"},
		{"it ends and says why", frameOf(`{"ending":true,"reason":"wrong lane"}`), nil, transport.ErrPeer, "it says: wrong lane"},
		{"it is drained without having ended", frameOf(`{"drained":true}`), nil, transport.ErrPeer, "it ended the connection"},
		{"no JSON", frameOf(`}`), nil, transport.ErrProtocol, "read message"},
		{"a list", frameOf(`[]`), nil, transport.ErrProtocol, "read message"},
		{"region that is no number", frameOf(`{"withdraw":-1}`), nil, transport.ErrProtocol, "read message"},
		{"a frame that never ends", "\xff\xff\xff\xff", nil, transport.ErrProtocol, "4294967295 bytes where 1048576 are allowed"},
		{"what the role does not take", frameOf(`{"withdraw":7}`), refuse, nil, "not that"},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, peer := listening(t, c.hear)
			if _, err := peer.Write([]byte(c.say)); err != nil {
				t.Fatal(err)
			}
			select {
			case <-conn.closing:
			case <-time.After(patience):
				t.Fatal("the connection goes on")
			}
			if c.want != nil && !errors.Is(conn.Err(), c.want) {
				t.Errorf("%v does not wrap %q", conn.Err(), c.want)
			}
			says(t, conn.Err(), c.says)
		})
	}
	t.Run("it is gone", func(t *testing.T) {
		conn, peer := listening(t, nil)
		peer.Close()
		<-conn.closing
		if !errors.Is(conn.Err(), transport.ErrPeer) || !conn.gone.Load() {
			t.Errorf("%v, gone %v", conn.Err(), conn.gone.Load())
		}
	})
}

func frameOf(s string) string {
	return string(binary.BigEndian.AppendUint32(nil, uint32(len(s)))) + s
}

// TestEvents: what UCX tells that is no transfer's own, and what the peer is told of it.
func TestEvents(t *testing.T) {
	needUCX(t) // for UCX's words
	for _, c := range []struct {
		name   string
		events []ucx.Event
		want   error
		says   string
		told   string // the peer; nothing where it is the one that is lost
	}{
		{"endpoint failed", []ucx.Event{{Kind: ucx.Ended, Status: ucx.StatusIO}}, transport.ErrPeer, "Input/output error", ""},
		{"message that does not fit", []ucx.Event{{Kind: ucx.Violation}}, transport.ErrProtocol, "does not fit", "does not fit"},
		{"two greetings", []ucx.Event{{Kind: ucx.Greeted}, {Kind: ucx.Greeted}}, transport.ErrProtocol, "second greeting", "second greeting"},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, peer := listening(t, nil)
			for _, e := range c.events {
				conn.happened(e)
			}
			if !errors.Is(conn.Err(), c.want) {
				t.Errorf("%v does not wrap %q", conn.Err(), c.want)
			}
			says(t, conn.Err(), c.says)
			if c.told == "" {
				return
			}
			if m := heard(t, peer); !m.Ending || !strings.Contains(m.Reason, c.told) {
				t.Errorf("the peer is told %+v", m)
			}
		})
	}
}

// TestWithdrawals: an answer to what was not asked, and a request about what is not known.
func TestWithdrawals(t *testing.T) {
	tg := &target{withdrawn: map[uint32]chan struct{}{7: make(chan struct{})}}
	for _, id := range []uint32{0, 8} {
		if err := tg.hear(message{Withdrawn: id}); !errors.Is(err, transport.ErrProtocol) {
			t.Errorf("withdrawal of %d confirmed: %v, want ErrProtocol", id, err)
		}
	}
	if err := tg.hear(message{Withdrawn: 7}); err != nil {
		t.Error(err)
	}
	if err := tg.hear(message{Withdrawn: 7}); !errors.Is(err, transport.ErrProtocol) {
		t.Errorf("confirmed twice: %v, want ErrProtocol", err)
	}

	conn, peer := listening(t, nil)
	in := &initiator{connection: conn}
	in.remotes.known = make(map[uint32]struct{})
	in.remotes.byID = map[uint32]*remote{3: {advertised: advertised{ID: 3}, uses: 1}}
	if err := in.hear(message{Withdraw: 9}); err != nil { // never imported, so never used
		t.Error(err)
	}
	if m := heard(t, peer); m.Withdrawn != 9 {
		t.Errorf("the target hears %+v", m)
	}
	r := in.remotes.byID[3]
	if err := in.hear(message{Withdraw: 3}); err != nil {
		t.Error(err)
	}
	if r.acquire() {
		t.Error("a transfer may use a region that is withdrawn")
	}
	if err := in.hear(message{Withdraw: 3}); err != nil { // a target that asks again is told no sooner
		t.Error(err)
	}
	if err := in.hear(message{Withdraw: 10}); err != nil {
		t.Error(err)
	}
	if m := heard(t, peer); m.Withdrawn != 10 {
		t.Errorf("with a transfer under way, the target hears %+v", m)
	}
	in.release(r) // the transfer that used it ends, and with it the wait
	if m := heard(t, peer); m.Withdrawn != 3 {
		t.Errorf("the target hears %+v", m)
	}
	in.wg.Wait()
	if _, ok := in.remotes.byID[3]; ok {
		t.Error("a region that was let go of is known still")
	}
}

// TestImportsAgain: an advertisement of a region that is imported already changes nothing, so
// that whoever uses it is still waited for; one that was withdrawn is gone for good.
func TestImportsAgain(t *testing.T) {
	conn, peer := listening(t, nil)
	in := newInitiator(&connection{cfg: transport.Config{MaxOutstanding: 1}, engine: &engine{}, socket: conn.socket, dead: conn.dead})
	imports := func(ids ...uint32) error { // empty regions, which take no key
		var regions []advertised
		for _, id := range ids {
			regions = append(regions, advertised{ID: id})
		}
		b, err := json.Marshal(regions)
		if err != nil {
			t.Fatal(err)
		}
		got, err := in.Import(b)
		if err == nil && len(got) != len(ids) {
			t.Errorf("%d regions imported as %v", len(ids), got)
		}
		return err
	}
	if err := imports(3, 4); err != nil {
		t.Fatal(err)
	}
	r := in.remotes.byID[3]
	if !r.acquire() {
		t.Fatal("a region that was imported may not be used")
	}
	if err := imports(5, 3); err != nil || in.remotes.byID[3] != r || in.remotes.byID[5] == nil {
		t.Errorf("a new one and one in use: %v, %v", err, in.remotes.byID)
	}
	if _, err := in.claim(advertised{ID: 3, Size: 1}); !errors.Is(err, transport.ErrProtocol) {
		t.Errorf("of another size under the same ID: %v, want ErrProtocol", err)
	}
	withdraw := func(id uint32) {
		t.Helper()
		if err := in.hear(message{Withdraw: id}); err != nil {
			t.Fatal(err)
		}
	}
	gone := func(what string, id uint32) {
		t.Helper()
		if err := imports(id); !errors.Is(err, transport.ErrRegion) {
			t.Errorf("%s: %v, want ErrRegion", what, err)
		}
	}
	withdraw(3)
	gone("withdrawn while in use", 3)
	withdraw(4)
	if m := heard(t, peer); m.Withdrawn != 4 {
		t.Errorf("region 3 is in use, and the target hears %+v", m)
	}
	gone("let go of", 4)
	withdraw(6)
	if m := heard(t, peer); m.Withdrawn != 6 {
		t.Errorf("the target hears %+v", m)
	}
	gone("withdrawn before it was imported", 6)

	// While it is being imported it is used by that, and not to be had afterwards.
	r, err := in.claim(advertised{ID: 8})
	if err != nil {
		t.Fatal(err)
	}
	withdraw(8)
	withdraw(9)
	if m := heard(t, peer); m.Withdrawn != 9 {
		t.Errorf("region 8 is being imported, and the target hears %+v", m)
	}
	if err := in.settle(r, nil); !errors.Is(err, transport.ErrRegion) {
		t.Errorf("withdrawn while it was imported: %v, want ErrRegion", err)
	}
	if m := heard(t, peer); m.Withdrawn != 8 {
		t.Errorf("once it is imported the target hears %+v", m)
	}
	in.wg.Wait()
	if in.remotes.byID[8] != nil || len(in.remotes.coming) > 0 {
		t.Errorf("a region that was let go of is known still: %v, %v", in.remotes.byID, in.remotes.coming)
	}
}

// TestTooManyRegions: what is remembered of a peer's regions has an end, and those that are
// remembered may go.
func TestTooManyRegions(t *testing.T) {
	conn, peer := listening(t, nil)
	in := newInitiator(&connection{cfg: transport.Config{MaxOutstanding: 1}, engine: &engine{}, socket: conn.socket, dead: conn.dead})
	for id := range uint32(maxRemotes) {
		in.remotes.known[id] = struct{}{}
	}
	if _, err := in.claim(advertised{ID: maxRemotes}); !errors.Is(err, transport.ErrProtocol) {
		t.Errorf("one more imported: %v, want ErrProtocol", err)
	}
	if err := in.hear(message{Withdraw: 1}); err != nil {
		t.Errorf("one of them withdrawn: %v", err)
	}
	if m := heard(t, peer); m.Withdrawn != 1 {
		t.Errorf("the target hears %+v", m)
	}
	if err := in.hear(message{Withdraw: maxRemotes}); !errors.Is(err, transport.ErrProtocol) {
		t.Errorf("one more withdrawn: %v, want ErrProtocol", err)
	}
}

// TestTwoInitiators: a peer that writes to a side that has no memory to be written
// is cut off, whatever the two have agreed to be.
func TestTwoInitiators(t *testing.T) {
	needUCX(t)
	for _, lane := range []string{"shm", "tcp"} {
		t.Run(lane, func(t *testing.T) {
			a, b := twoInitiators(t, lane)
			a.engine.do(func() {
				a.engine.worker.Pieces(0, 1)
				a.engine.worker.Fill(0, ucx.Put, 1, 0, 0, ucx.Memory{}, ucx.Remote{}, 0)
				a.engine.worker.Submit(0) // nothing to move, and a notice of it
			})
			select {
			case <-b.dead:
			case <-time.After(patience):
				t.Fatal("a notice at an initiator is let pass")
			}
			if !errors.Is(b.Err(), transport.ErrProtocol) {
				t.Errorf("%v does not wrap ErrProtocol", b.Err())
			}
			says(t, b.Err(), "notice")
			<-a.dead // is told
			says(t, a.Err(), "it says", "notice")
		})
	}
}

// twoInitiators are connected to one another.
func twoInitiators(t *testing.T, lane string) (a, b *initiator) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cfg := transport.Config{Lane: lane, MaxOutstanding: 2}
	l, err := New().Listen(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan error, 1)
	go func() {
		// The dialler says that it is an initiator, which leaves the target to this side.
		err := l.(*listener).answer(ctx, rendezvous.Initiator, func(c *connection) { b = newInitiator(c) })
		if err == nil {
			b.start()
			err = b.greet(ctx)
		}
		accepted <- err
	}()
	in, err := New().Dial(ctx, l.Address(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
	a = in.(*initiator)
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// TestOddHellos: a dialler that asks for what cannot be is told so.
func TestOddHellos(t *testing.T) {
	needUCX(t)
	for _, c := range []struct {
		name  string
		hello any
		says  string
	}{
		{"another lane", hello{Worker: []byte{1}, Lane: "tcp", Outstanding: 1}, `asks for lane "tcp"`},
		{"no transfers", hello{Worker: []byte{1}, Lane: "shm"}, "0 transfers outstanding"},
		{"too many transfers", hello{Worker: []byte{1}, Lane: "shm", Outstanding: maxOutstanding + 1}, "65537 transfers outstanding"},
		{"no worker", hello{Lane: "shm", Outstanding: 1}, "empty worker address"},
		{"no hello", []int{1}, "read hello"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := New().Listen(t.Context(), transport.Config{Lane: "shm"})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			dialled := make(chan error, 1)
			go func() {
				var answer hello
				_, err := rendezvous.Dial(t.Context(), l.Address(), "", rendezvous.Initiator, c.hello, &answer, patience)
				dialled <- err
			}()
			if _, err := l.AcceptTarget(t.Context()); err == nil {
				t.Error("it was accepted")
			} else {
				says(t, err, c.says)
			}
			says(t, <-dialled, "the peer refused", c.says)
		})
	}
}
