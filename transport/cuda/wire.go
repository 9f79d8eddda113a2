package cuda

import (
	"encoding/binary"
	"fmt"

	"kvbench/internal/cudadrv"
	"kvbench/transport"
)

// frameType says what a frame tells.
type frameType uint8

const (
	frameDevice   frameType = iota + 1 // initiator: the device that copies
	frameNotice                        // initiator: a transfer's copies have ended
	frameAck                           // target: it knows of a WRITE
	frameWithdraw                      // target: a region is to be closed
	frameClosed                        // initiator: it is
)

const frameSize = 32

// frame is what travels on the local socket.
//
//	0      1      4        8     16     24
//	type   op     region   id    slot   bytes
//	uint8  uint8  uint32   u64   u32    u64     big endian
//
// A device frame holds the UUID in bytes 8 to 23 and nothing else.
type frame struct {
	typ    frameType
	op     transport.Op
	region uint32 // the target's
	id     uint64 // the transfer's ID
	slot   uint32 // the initiator's place for the transfer, echoed by the target
	bytes  uint64 // of the transfer
	device cudadrv.UUID
}

func (f frame) put(b *[frameSize]byte) {
	*b = [frameSize]byte{0: byte(f.typ), 1: byte(f.op)}
	if f.typ == frameDevice {
		copy(b[8:24], f.device[:])
		return
	}
	binary.BigEndian.PutUint32(b[4:], f.region)
	binary.BigEndian.PutUint64(b[8:], f.id)
	binary.BigEndian.PutUint32(b[16:], f.slot)
	binary.BigEndian.PutUint64(b[24:], f.bytes)
}

// parseFrame reads a frame and checks what can be checked without state.
func parseFrame(b *[frameSize]byte) (frame, error) {
	f := frame{typ: frameType(b[0]), op: transport.Op(b[1])}
	if f.typ < frameDevice || f.typ > frameClosed {
		return f, fmt.Errorf("frame type %d: %w", f.typ, transport.ErrProtocol)
	}
	if f.typ == frameDevice {
		f.device = cudadrv.UUID(b[8:24])
		return f, nil
	}
	f.region = binary.BigEndian.Uint32(b[4:])
	f.id = binary.BigEndian.Uint64(b[8:])
	f.slot = binary.BigEndian.Uint32(b[16:])
	f.bytes = binary.BigEndian.Uint64(b[24:])
	if f.typ == frameNotice && f.op != transport.Write && f.op != transport.Read {
		return f, fmt.Errorf("notice of operation %d: %w", f.op, transport.ErrProtocol)
	}
	if f.bytes > 1<<62 {
		return f, fmt.Errorf("notice of %d bytes: %w", f.bytes, transport.ErrProtocol)
	}
	return f, nil
}
