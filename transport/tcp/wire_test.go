package tcp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net"
	"testing"
	"time"

	"kvbench/transport"
)

func TestHeaderRoundTrip(t *testing.T) {
	want := header{typ: frameWrite, flags: flagLast, parts: 3, ranges: maxRanges, id: math.MaxUint64, region: 7, slot: 9, bytes: 1 << 40}
	var b [headerSize]byte
	want.put(b[:])
	got, err := parseHeader(b[:])
	if err != nil || got != want {
		t.Errorf("parseHeader = %+v, %v, want %+v", got, err, want)
	}
}

func TestHeaderRefuses(t *testing.T) {
	good := header{typ: frameWrite, parts: 1}
	for name, change := range map[string]func(*header){
		"type 0":           func(h *header) { h.typ = 0 },
		"unknown type":     func(h *header) { h.typ = frameAbort + 1 },
		"unknown flag":     func(h *header) { h.flags = 2 },
		"too many ranges":  func(h *header) { h.ranges = maxRanges + 1 },
		"ranges in an ack": func(h *header) { h.typ, h.ranges = frameAck, 1 },
		"absurd size":      func(h *header) { h.bytes = 1<<62 + 1 },
		"no parts":         func(h *header) { h.parts = 0 },
	} {
		h := good
		change(&h)
		var b [headerSize]byte
		h.put(b[:])
		if _, err := parseHeader(b[:]); !errors.Is(err, transport.ErrProtocol) {
			t.Errorf("%s: error %v, want ErrProtocol", name, err)
		}
	}
}

func TestCheckRanges(t *testing.T) {
	const size = 1000
	for _, c := range []struct {
		name   string
		ranges [][2]uint64
		bytes  uint64
		want   error
	}{
		{"none", nil, 0, nil},
		{"whole region", [][2]uint64{{0, 1000}}, 1000, nil},
		{"at the end", [][2]uint64{{1000, 0}, {999, 1}}, 1, nil},
		{"one too long", [][2]uint64{{1, 1000}}, 1000, transport.ErrBounds},
		{"past the end", [][2]uint64{{1001, 0}}, 0, transport.ErrBounds},
		{"wraps", [][2]uint64{{math.MaxUint64, 2}}, 2, transport.ErrBounds},
		{"length wraps", [][2]uint64{{2, math.MaxUint64}}, 1, transport.ErrBounds},
		{"sum too small", [][2]uint64{{0, 10}}, 9, transport.ErrProtocol},
		{"sum too large", [][2]uint64{{0, 10}}, 11, transport.ErrProtocol},
	} {
		table := make([]byte, rangeSize*len(c.ranges))
		for i, r := range c.ranges {
			binary.BigEndian.PutUint64(table[i*rangeSize:], r[0])
			binary.BigEndian.PutUint64(table[i*rangeSize+8:], r[1])
		}
		err := checkRanges(header{ranges: uint32(len(c.ranges)), bytes: c.bytes}, table, size)
		if c.want == nil && err != nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", c.name, err, c.want)
		}
	}
}

func TestCut(t *testing.T) {
	descs := []transport.Descriptor{{Length: 10}, {Length: 0}, {Length: 5}, {Length: 85}}
	for parts := 1; parts <= 7; parts++ {
		at := make([]cursor, parts+1)
		cut(descs, 100, at)
		var total int64
		for i := range parts {
			c, n := at[i], int64(0)
			for {
				d, ok := nextRange(descs, &c, at[i+1], 7)
				if !ok {
					break
				}
				if d.Length < 1 || d.Length > 7 {
					t.Fatalf("%d parts: range of %d bytes", parts, d.Length)
				}
				n += d.Length
			}
			if share := int64(100 / parts); n < share || n > share+1 {
				t.Errorf("%d parts: part %d has %d bytes", parts, i, n)
			}
			total += n
		}
		if total != 100 {
			t.Errorf("%d parts: %d bytes of 100", parts, total)
		}
	}
}

func TestHello(t *testing.T) {
	good := hello{role: targetRole, stream: 1, streams: 2, outstanding: 64}
	good.secret[3], good.conn[5] = 1, 2
	if got, err := parseHello(good.encode()); err != nil || got != good {
		t.Errorf("parseHello = %+v, %v, want %+v", got, err, good)
	}
	for name, change := range map[string]func(*hello){
		"role 0":           func(h *hello) { h.role = 0 },
		"role 3":           func(h *hello) { h.role = 3 },
		"no streams":       func(h *hello) { h.stream, h.streams = 0, 0 },
		"too many streams": func(h *hello) { h.streams = maxStreams + 1 },
		"stream past end":  func(h *hello) { h.stream = 2 },
		"no transfers":     func(h *hello) { h.outstanding = 0 },
		"too many":         func(h *hello) { h.outstanding = maxOutstanding + 1 },
	} {
		h := good
		change(&h)
		if _, err := parseHello(h.encode()); !errors.Is(err, transport.ErrProtocol) {
			t.Errorf("%s: error %v, want ErrProtocol", name, err)
		}
	}
	b := good.encode()
	b[4]++
	if _, err := parseHello(b); !errors.Is(err, transport.ErrProtocol) {
		t.Errorf("another version: error %v, want ErrProtocol", err)
	}
}

func FuzzHeader(f *testing.F) {
	f.Add(make([]byte, headerSize), int64(0))
	h := header{typ: frameWrite, parts: 1, ranges: 1, bytes: 4}
	b := make([]byte, headerSize+rangeSize)
	h.put(b)
	putRange(b[headerSize:], 2, 4)
	f.Add(b, int64(6))
	f.Fuzz(func(t *testing.T, b []byte, size int64) {
		if len(b) < headerSize || size < 0 {
			return
		}
		h, err := parseHeader(b)
		table := b[headerSize:]
		if err != nil || len(table) < rangeSize*int(h.ranges) {
			return
		}
		if checkRanges(h, table, size) != nil {
			return
		}
		for i := range int(h.ranges) {
			off, length := rangeAt(table, i)
			if end := off + length; end < off || end > uint64(size) {
				t.Fatalf("accepted range [%d, %d+%d) of a region of %d", off, off, length, size)
			}
		}
	})
}

func FuzzHello(f *testing.F) {
	f.Add(hello{role: initiatorRole, streams: 1, outstanding: 1}.encode())
	f.Add([]byte("KVBD"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHello(b)
		if err == nil && (h.stream >= h.streams || h.streams > maxStreams || h.outstanding > maxOutstanding) {
			t.Fatalf("accepted %+v", h)
		}
	})
}

// socketPair is two ends of one loopback connection.
func socketPair(tb testing.TB) (a, b *net.TCPConn) {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	ca, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	cb, err := l.Accept()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { ca.Close(); cb.Close() })
	return ca.(*net.TCPConn), cb.(*net.TCPConn)
}

// hostile sends bytes to a target that has 4096 bytes registered, and returns
// what the target answered once it hung up.
func hostile(tb testing.TB, send []byte) (memory, answer []byte) {
	tb.Helper()
	a, b := socketPair(tb)
	cfg := transport.Config{MaxOutstanding: 4}.WithDefaults()
	s, err := newStream(b, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	target := newTarget(newConnection(cfg, []*stream{s}))
	memory = make([]byte, 4096)
	if _, err := target.Register(transport.HostBytes(memory)); err != nil {
		tb.Fatal(err)
	}
	if err := a.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		tb.Fatal(err)
	}
	if _, err := a.Write(send); err == nil {
		a.CloseWrite()
	}
	answer, _ = io.ReadAll(a)
	if err := target.Close(); err != nil {
		tb.Fatal(err)
	}
	return memory, answer
}

// TestHostileInitiator: the target itself checks every range that it is told to
// write or send, whatever an initiator has checked.
func TestHostileInitiator(t *testing.T) {
	frame := func(typ frameType, region, slot uint32, off, length int64, payload int) []byte {
		b := make([]byte, headerSize+rangeSize+payload)
		header{typ: typ, flags: flagLast, parts: 1, ranges: 1, id: 5, region: region, slot: slot, bytes: uint64(length)}.put(b)
		putRange(b[headerSize:], off, length)
		for i := range payload {
			b[headerSize+rangeSize+i] = 0xee
		}
		return b
	}
	for _, c := range []struct {
		name string
		send []byte
		code abortCode
	}{
		{"write past the end", frame(frameWrite, 1, 0, 4000, 97, 0), abortBounds},
		{"read past the end", frame(frameReadReq, 1, 0, 4000, 97, 0), abortBounds},
		{"write before the start", frame(frameWrite, 1, 0, -1, 4, 0), abortBounds},
		{"unknown region", frame(frameWrite, 2, 0, 0, 4, 0), abortRegion},
		{"slot out of range", frame(frameWrite, 1, 4, 0, 4, 0), abortProtocol},
		{"data for a target", frame(frameReadData, 1, 0, 0, 4, 0)[:headerSize], abortProtocol},
		{"nonsense", bytes.Repeat([]byte{0xff}, headerSize), abortProtocol},
	} {
		memory, answer := hostile(t, c.send)
		if !bytes.Equal(memory, make([]byte, len(memory))) {
			t.Errorf("%s: memory was written", c.name)
		}
		if len(answer) != headerSize {
			t.Errorf("%s: answered with %d bytes", c.name, len(answer))
			continue
		}
		h, err := parseHeader(answer)
		if err != nil || h.typ != frameAbort || abortCode(h.slot) != c.code {
			t.Errorf("%s: answer %+v, %v, want an abort with code %d", c.name, h, err, c.code)
		}
	}
	memory, answer := hostile(t, frame(frameWrite, 1, 0, 8, 4, 4))
	if h, err := parseHeader(answer); err != nil || h.typ != frameAck || h.id != 5 {
		t.Errorf("a good frame is answered with %+v, %v", h, err)
	}
	if !bytes.Equal(memory[7:13], []byte{0, 0xee, 0xee, 0xee, 0xee, 0}) {
		t.Errorf("a good frame left % x", memory[7:13])
	}
}

func FuzzTarget(f *testing.F) {
	var head [headerSize + rangeSize]byte
	header{typ: frameWrite, flags: flagLast, parts: 1, ranges: 1, region: 1, bytes: 4}.put(head[:])
	putRange(head[headerSize:], 0, 4)
	f.Add(append(head[:], 1, 2, 3, 4))
	header{typ: frameReadReq, flags: flagLast, parts: 1, ranges: 1, region: 1, bytes: 4}.put(head[:])
	f.Add(bytes.Clone(head[:]))
	f.Fuzz(func(t *testing.T, b []byte) { hostile(t, b) })
}
