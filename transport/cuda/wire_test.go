package cuda

import (
	"errors"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"kvbench/internal/cudadrv"
	"kvbench/transport"
)

func FuzzParseFrame(f *testing.F) {
	var b [frameSize]byte
	for _, seed := range []frame{
		{typ: frameDevice, device: cudadrv.UUID{Bytes: [16]byte{1, 15: 9}}},
		{typ: frameDevice, device: cudadrv.UUID{Bytes: [16]byte{14: 3}, MIG: true}},
		{typ: frameNotice, op: transport.Read, region: 1, id: 1<<64 - 1, slot: 3, bytes: 1 << 62},
		{typ: frameAck, id: 5, slot: 1<<32 - 1},
		{typ: frameClosed, region: 1<<32 - 1},
		{typ: frameWant, region: 3},
		{typ: frameDescriptor, region: 3},
		{typ: frameDescriptor, region: 3, slot: 801},
	} {
		seed.put(&b)
		f.Add(b[:])
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) != frameSize {
			return
		}
		parsed, err := parseFrame((*[frameSize]byte)(in))
		if err != nil {
			if !errors.Is(err, transport.ErrProtocol) {
				t.Fatalf("error %v", err)
			}
			return
		}
		var out [frameSize]byte
		parsed.put(&out)
		if again, err := parseFrame(&out); err != nil || again != parsed {
			t.Fatalf("%+v became %+v, %v", parsed, again, err)
		}
	})
}

func FuzzParseAdvertisement(f *testing.F) {
	f.Add([]byte(mustMarshal([]advertised{{
		ID: 1, Size: 10, Device: make([]byte, 16), Sharing: byHandle, Handle: make([]byte, cudadrv.HandleSize), Offset: 5, Allocation: 15,
	}})))
	f.Add([]byte(mustMarshal([]advertised{{
		ID: 2, Size: 1, Device: make([]byte, 16), Sharing: byDescriptor, Handle: make([]byte, cudadrv.HandleSize), Allocation: 2 << 20,
	}})))
	f.Add([]byte(`[{"offset_bytes":9223372036854775807,"size_bytes":9223372036854775807}]`))
	f.Fuzz(func(t *testing.T, in []byte) {
		all, err := parseAdvertisement(in)
		if err != nil {
			if !errors.Is(err, transport.ErrProtocol) {
				t.Fatalf("error %v", err)
			}
			return
		}
		for _, a := range all {
			if a.Sharing != byHandle && a.Sharing != byDescriptor || len(a.Handle) != cudadrv.HandleSize || len(a.Device) != 16 || a.Size < 1 || a.Offset < 0 || a.Offset > a.Allocation-a.Size {
				t.Fatalf("%+v was let through", a)
			}
		}
	})
}

func FuzzParseAddress(f *testing.F) {
	f.Add([]byte(newAddress().encode()))
	f.Add([]byte(`{"socket":"/etc/passwd","secret":"AAAAAAAAAAAAAAAAAAAAAA=="}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		a, err := parseAddress(in)
		if err == nil && (len(a.Secret) != secretSize || !strings.HasPrefix(a.Socket, "@")) {
			t.Fatalf("%+v was let through", a)
		}
	})
}

func FuzzGreeting(f *testing.F) {
	f.Add([]byte{0, 0, 0, 2, '{', '}'})
	f.Add([]byte{255, 255, 255, 255})
	addr := newAddress()
	f.Fuzz(func(t *testing.T, in []byte) {
		a, b := net.Pipe()
		defer a.Close()
		go func() {
			b.Write(in)
			b.Close()
		}()
		var h hello
		if err := receive(a, &h); err != nil {
			return
		}
		if _, err := h.check(addr, transport.Config{}); err == nil {
			t.Fatalf("%+v was admitted without the secret", h)
		}
	})
}

func TestHelloCheck(t *testing.T) {
	addr := newAddress()
	good := hello{Version: wireVersion, Secret: addr.Secret, Role: targetRole, Streams: 3, Outstanding: 7, Host: addr.Host}
	good.Host.PID++
	cfg, err := good.check(addr, transport.Config{})
	if err != nil || cfg.Streams != 3 || cfg.MaxOutstanding != 7 {
		t.Fatalf("%+v, %v", cfg, err)
	}
	for name, c := range map[string]struct {
		spoil func(*hello)
		want  error
	}{
		"version":     {func(h *hello) { h.Version++ }, transport.ErrProtocol},
		"secret":      {func(h *hello) { h.Secret = make([]byte, secretSize) }, transport.ErrProtocol},
		"role":        {func(h *hello) { h.Role = "" }, transport.ErrProtocol},
		"no streams":  {func(h *hello) { h.Streams = 0 }, transport.ErrProtocol},
		"streams":     {func(h *hello) { h.Streams = maxStreams + 1 }, transport.ErrUnsupported},
		"outstanding": {func(h *hello) { h.Outstanding = maxOutstanding + 1 }, transport.ErrUnsupported},
		"process":     {func(h *hello) { h.Host.PID-- }, transport.ErrUnavailable},
		"namespace":   {func(h *hello) { h.Host.PIDNamespace = "pid:[1]" }, transport.ErrUnavailable},
	} {
		h := good
		c.spoil(&h)
		if _, err := h.check(addr, transport.Config{}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOpensHandlesOf(t *testing.T) {
	here := identity{"boot-a", "pid:[1]", 10}
	for _, c := range []struct {
		peer identity
		want string // nothing: handles open
	}{
		{identity{"boot-a", "pid:[1]", 11}, ""},
		{identity{"boot-b", "pid:[1]", 11}, "the peer runs on another (boot ID boot-a here, boot-b there): use the transport tcp or rdma"},
		{identity{"boot-b", "pid:[2]", 10}, "the peer runs on another"},
		{identity{"boot-a", "pid:[2]", 10}, "do not cross PID namespaces (pid:[1] here, pid:[2] there): run both in one, with --pid=host (docker) or hostPID: true"},
		{identity{"boot-a", "pid:[1]", 10}, "does not open in the process that made it"},
		// What a system does not tell is no reason to refuse.
		{identity{"", "", 11}, ""},
	} {
		err := here.opensHandlesOf(c.peer)
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, transport.ErrUnavailable) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("peer %+v: %v, want %q", c.peer, err, c.want)
		}
	}
}

// TestCollect cuts a transfer into the parts of streams.
func TestCollect(t *testing.T) {
	descs := []transport.Descriptor{{Local: 100, Remote: 1000, Length: 5}, {Local: 200, Remote: 2000}, {Local: 300, Remote: 3000, Length: 6}}
	type piece struct{ to, from, n int64 }
	for _, c := range []struct {
		op    transport.Op
		parts int
		want  [][]piece // by part; region 1<<20 here, 1<<30 there
	}{
		{transport.Write, 1, [][]piece{{{1000, 100, 5}, {3000, 300, 6}}}},
		// 11 bytes in three: 4, 4 and 3.
		{transport.Write, 3, [][]piece{{{1000, 100, 4}}, {{1004, 104, 1}, {3000, 300, 3}}, {{3003, 303, 3}}}},
		{transport.Read, 2, [][]piece{{{100, 1000, 5}, {300, 3000, 1}}, {{301, 3001, 5}}}},
	} {
		s := slot{
			transfer: transport.Transfer{Op: c.op, Descriptors: descs}, bytes: 11, parts: c.parts,
			local:  &region{pointer: 1 << 20},
			remote: &remoteRegion{mapping: &mapping{base: 1<<30 - 64}, advertised: advertised{Offset: 64}},
		}
		for part, want := range c.want {
			var wanted, got cudadrv.Copies
			for _, p := range want {
				here, there := cudadrv.DevicePointer(1<<20+p.from), cudadrv.DevicePointer(1<<30+p.to)
				if c.op == transport.Read {
					here, there = cudadrv.DevicePointer(1<<20+p.to), cudadrv.DevicePointer(1<<30+p.from)
					wanted.Add(here, there, p.n)
					continue
				}
				wanted.Add(there, here, p.n)
			}
			s.collect(part, &got)
			if !reflect.DeepEqual(got, wanted) {
				t.Errorf("%v, part %d of %d: %v, want %v", c.op, part, c.parts, got, wanted)
			}
		}
	}
}

// rawLink is a connection whose other end is this test.
func rawLink(t *testing.T) (link, *net.UnixConn) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: newAddress().Socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	peer, err := net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { peer.Close() })
	cfg, err := checkConfig(transport.Config{PeerTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return link{net: conn, cfg: cfg}, peer
}

// rawTarget is a target whose initiator is this test.
func rawTarget(t *testing.T) (*target, net.Conn) {
	t.Helper()
	l, peer := rawLink(t)
	return newTarget(l), peer
}

// TestHostileInitiator sends a target what none should.
func TestHostileInitiator(t *testing.T) {
	for name, f := range map[string]frame{
		"notice of an unknown region": {typ: frameNotice, op: transport.Write, region: 9},
		"close of an unknown region":  {typ: frameClosed, region: 9},
		"close that was not asked":    {typ: frameClosed, region: 1},
		"acknowledgement":             {typ: frameAck},
		"withdrawal":                  {typ: frameWithdraw, region: 1},
		"unknown frame":               {typ: 99},
		"want of what has a handle":   {typ: frameWant, region: 1},
		"descriptor refused":          {typ: frameDescriptor, region: 1, slot: 1},
		"unknown operation":           {typ: frameNotice, op: 77, region: 1},
	} {
		t.Run(name, func(t *testing.T) {
			target, peer := rawTarget(t)
			target.regions.add(nil, transport.Memory{Kind: transport.CUDAMemory, Length: 1}, cudadrv.Exported{})
			var b [frameSize]byte
			f.put(&b)
			if _, err := peer.Write(b[:]); err != nil {
				t.Fatal(err)
			}
			var notices [1]transport.Notice
			peer.(*net.UnixConn).CloseWrite()
			n, err := target.Notifications(t.Context(), notices[:])
			if n != 0 || !errors.Is(err, transport.ErrPeer) || !errors.Is(err, transport.ErrProtocol) {
				t.Errorf("%d notices, error %v; want one that wraps ErrPeer and ErrProtocol", n, err)
			}
			if err := target.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
}
