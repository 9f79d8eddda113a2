package staged

import (
	"encoding/binary"
	"fmt"

	"kvbench/transport"
)

// frameType is the kind of a frame.
type frameType uint8

const (
	frameChunk  frameType = iota + 1 // initiator: the target's ranges of a chunk; a table follows
	frameStaged                      // target: a READ's chunk is in its ring
	frameLanded                      // target: a WRITE's chunk is in device memory
	frameDone                        // initiator: a READ is delivered
	frameEnd                         // either: the connection ends; the reason follows
)

const (
	frameSize = 40
	pieceSize = 16
	maxReason = 1 << 10
)

// frame is one message on the socket.
//
//	0      1      4       8    16       20     24      32       36
//	type   op     place   id   region   slot   bytes   chunks   follow
//	uint8  uint8  uint32  u64  uint32   u32    u64     uint32   uint32   big endian
//
// A chunk's table has an offset and a length of 8 bytes for each range.
type frame struct {
	typ    frameType
	op     transport.Op
	place  uint32 // the chunk's place in both rings
	id     uint64 // the transfer's ID
	region uint32 // the target's region
	slot   uint32 // the initiator's slot for the transfer
	bytes  uint64 // the transfer's bytes
	chunks uint32 // the transfer's chunks
	follow uint32 // ranges in the table, or bytes of the reason
}

func (f frame) put(b []byte) {
	clear(b[:frameSize])
	b[0], b[1] = byte(f.typ), byte(f.op)
	binary.BigEndian.PutUint32(b[4:], f.place)
	binary.BigEndian.PutUint64(b[8:], f.id)
	binary.BigEndian.PutUint32(b[16:], f.region)
	binary.BigEndian.PutUint32(b[20:], f.slot)
	binary.BigEndian.PutUint64(b[24:], f.bytes)
	binary.BigEndian.PutUint32(b[32:], f.chunks)
	binary.BigEndian.PutUint32(b[36:], f.follow)
}

// parseFrame reads a frame and checks everything that needs no state.
func parseFrame(b []byte) (frame, error) {
	f := frame{
		typ: frameType(b[0]), op: transport.Op(b[1]),
		place: binary.BigEndian.Uint32(b[4:]), id: binary.BigEndian.Uint64(b[8:]), region: binary.BigEndian.Uint32(b[16:]),
		slot: binary.BigEndian.Uint32(b[20:]), bytes: binary.BigEndian.Uint64(b[24:]),
		chunks: binary.BigEndian.Uint32(b[32:]), follow: binary.BigEndian.Uint32(b[36:]),
	}
	most := uint32(0)
	switch f.typ {
	case frameChunk:
		most = chunkPieces
		if f.op != transport.Write && f.op != transport.Read || f.chunks == 0 {
			return f, fmt.Errorf("chunk of operation %d, one of %d: %w", f.op, f.chunks, transport.ErrProtocol)
		}
	case frameStaged, frameLanded, frameDone:
	case frameEnd:
		most = maxReason
	default:
		return f, fmt.Errorf("frame type %d: %w", f.typ, transport.ErrProtocol)
	}
	if f.place >= ringPlaces || f.follow > most || f.bytes > 1<<62 {
		return f, fmt.Errorf("frame type %d of place %d with %d to follow, %d bytes: %w", f.typ, f.place, f.follow, f.bytes, transport.ErrProtocol)
	}
	return f, nil
}

// putPieces encodes a table.
func putPieces(b []byte, pieces []piece) {
	for i, p := range pieces {
		binary.BigEndian.PutUint64(b[i*pieceSize:], uint64(p.offset))
		binary.BigEndian.PutUint64(b[i*pieceSize+8:], uint64(p.length))
	}
}

// parsePieces decodes a table into pieces and returns their sum in bytes. It checks
// that each piece lies in a region of size bytes and that together they fit a chunk.
func parsePieces(b []byte, pieces []piece, size int64) ([]piece, int64, error) {
	var sum int64
	pieces = pieces[:0]
	for ; len(b) > 0; b = b[pieceSize:] {
		p := piece{int64(binary.BigEndian.Uint64(b)), int64(binary.BigEndian.Uint64(b[8:]))}
		if p.offset < 0 || p.length < 1 || p.offset > size || p.length > size-p.offset {
			return pieces, 0, fmt.Errorf("%d bytes at offset %d of a region of %d: %w", p.length, p.offset, size, transport.ErrBounds)
		}
		if p.length > chunkBytes-sum {
			return pieces, 0, fmt.Errorf("chunk of more than %d bytes: %w", int64(chunkBytes), transport.ErrProtocol)
		}
		sum += p.length
		pieces = append(pieces, p)
	}
	return pieces, sum, nil
}
