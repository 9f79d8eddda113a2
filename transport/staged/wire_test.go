package staged

import (
	"bytes"
	"errors"
	"testing"

	"kvbench/transport"
)

func TestFrame(t *testing.T) {
	want := frame{typ: frameChunk, op: transport.Read, place: 7, id: 1 << 40, region: 3, slot: 9, bytes: 1 << 50, chunks: 2, follow: 4096}
	var b [frameSize]byte
	want.put(b[:])
	if got, err := parseFrame(b[:]); err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	for name, spoil := range map[string]func(*frame){
		"unknown type":     func(f *frame) { f.typ = 9 },
		"no operation":     func(f *frame) { f.op = 0 },
		"no chunks":        func(f *frame) { f.chunks = 0 },
		"place outside":    func(f *frame) { f.place = ringPlaces },
		"table too long":   func(f *frame) { f.follow = chunkPieces + 1 },
		"too many bytes":   func(f *frame) { f.bytes = 1<<62 + 1 },
		"table to no type": func(f *frame) { f.typ = frameLanded },
		"reason too long":  func(f *frame) { f.typ, f.follow = frameEnd, maxReason+1 },
	} {
		f := want
		spoil(&f)
		f.put(b[:])
		if _, err := parseFrame(b[:]); !errors.Is(err, transport.ErrProtocol) {
			t.Errorf("%s: error %v, want ErrProtocol", name, err)
		}
	}
}

func TestPieces(t *testing.T) {
	for name, c := range map[string]struct {
		pieces []piece
		want   error
	}{
		"whole region":      {[]piece{{0, 100}}, nil},
		"one after another": {[]piece{{90, 10}, {0, 90}}, nil},
		"beyond the end":    {[]piece{{1, 100}}, transport.ErrBounds},
		"negative":          {[]piece{{-1, 1}}, transport.ErrBounds},
		"empty":             {[]piece{{0, 0}}, transport.ErrBounds},
		"overflow":          {[]piece{{1<<63 - 1, 2}}, transport.ErrBounds},
		"more than a chunk": {[]piece{{0, chunkBytes}, {0, 1}}, transport.ErrProtocol},
	} {
		size := int64(100)
		if name == "more than a chunk" {
			size = chunkBytes
		}
		b := make([]byte, len(c.pieces)*pieceSize)
		putPieces(b, c.pieces)
		got, sum, err := parsePieces(b, nil, size)
		if !errors.Is(err, c.want) || c.want == nil && (err != nil || sum != 100 || len(got) != len(c.pieces)) {
			t.Errorf("%s: %v of %d bytes, error %v; want %v", name, got, sum, err, c.want)
		}
	}
}

// FuzzFrames reads whatever a peer sends. What is taken for a chunk lies in its region.
func FuzzFrames(f *testing.F) {
	good := make([]byte, frameSize+2*pieceSize)
	frame{typ: frameChunk, op: transport.Write, chunks: 1, follow: 2}.put(good)
	putPieces(good[frameSize:], []piece{{0, 10}, {20, 30}})
	f.Add(good)
	end := append(make([]byte, frameSize), "why"...)
	frame{typ: frameEnd, follow: 3}.put(end)
	f.Add(end)
	f.Fuzz(func(t *testing.T, sent []byte) {
		const size = 1000
		r := bytes.NewReader(sent)
		buf := make([]byte, frameSize+chunkPieces*pieceSize)
		for {
			got, follows, err := readFrame(r, buf)
			if err != nil {
				if !errors.Is(err, transport.ErrPeer) && !errors.Is(err, transport.ErrProtocol) {
					t.Fatalf("error %v wraps neither ErrPeer nor ErrProtocol", err)
				}
				return
			}
			if got.typ != frameChunk {
				continue
			}
			pieces, sum, err := parsePieces(follows, nil, size)
			if err != nil {
				continue
			}
			for _, p := range pieces {
				if p.offset < 0 || p.length < 1 || p.offset+p.length > size {
					t.Fatalf("piece %+v of a region of %d", p, size)
				}
				sum -= p.length
			}
			if sum != 0 {
				t.Fatalf("sum off by %d", sum)
			}
		}
	})
}
