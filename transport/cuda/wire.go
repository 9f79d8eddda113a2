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
	frameDevice     frameType = iota + 1 // initiator: the device that copies
	frameNotice                          // initiator: a transfer's copies have ended
	frameAck                             // target: it knows of a WRITE
	frameWithdraw                        // target: a region is to be closed
	frameClosed                          // initiator: it is
	frameWant                            // initiator: a region's memory is to be sent as a file descriptor
	frameDescriptor                      // target: here it is, beside the frame, or slot says why not
)

const frameSize = 32

// frame is what travels on the local socket.
//
//	0      1      4        8     16     24
//	type   op     region   id    slot   bytes
//	uint8  uint8  uint32   u64   u32    u64     big endian
//
// A device frame holds the UUID in bytes 8 to 23, 1 in byte 2 where it is a MIG
// instance's, and nothing else. A descriptor frame
// whose slot is 0 comes with one file descriptor (SCM_RIGHTS), and no other frame with
// any; another slot is the CUresult that kept the target from making one.
type frame struct {
	typ    frameType
	op     transport.Op
	region uint32 // the target's
	id     uint64 // the transfer's ID
	slot   uint32 // the initiator's place for the transfer, echoed by the target; of a descriptor frame, why there is none
	bytes  uint64 // of the transfer
	device cudadrv.UUID
}

func (f frame) put(b *[frameSize]byte) {
	*b = [frameSize]byte{0: byte(f.typ), 1: byte(f.op)}
	if f.typ == frameDevice {
		copy(b[8:24], f.device.Bytes[:])
		if f.device.MIG {
			b[2] = 1
		}
		return
	}
	binary.BigEndian.PutUint32(b[4:], f.region)
	binary.BigEndian.PutUint64(b[8:], f.id)
	binary.BigEndian.PutUint32(b[16:], f.slot)
	binary.BigEndian.PutUint64(b[24:], f.bytes)
}

// descriptors is how many file descriptors come with the frame.
func (f frame) descriptors() int {
	if f.typ == frameDescriptor && f.slot == 0 {
		return 1
	}
	return 0
}

// parseFrame reads a frame and checks what can be checked without state.
func parseFrame(b *[frameSize]byte) (frame, error) {
	f := frame{typ: frameType(b[0]), op: transport.Op(b[1])}
	if f.typ < frameDevice || f.typ > frameDescriptor {
		return f, fmt.Errorf("frame type %d: %w", f.typ, transport.ErrProtocol)
	}
	if f.typ == frameDevice {
		f.device = cudadrv.UUID{Bytes: [16]byte(b[8:24]), MIG: b[2] == 1}
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
