package cuda

import (
	"encoding/binary"
	"fmt"

	"kvbench/internal/cudadrv"
	"kvbench/transport"
)

// frameType is the kind of a frame.
type frameType uint8

const (
	frameDevice     frameType = iota + 1 // initiator: the device that copies
	frameNotice                          // initiator: a transfer's copies have ended
	frameAck                             // target: a WRITE was noticed
	frameWithdraw                        // target: close a region
	frameClosed                          // initiator: the region is closed
	frameWant                            // initiator: send a file descriptor of a region's memory
	frameDescriptor                      // target: the file descriptor is beside the frame, or slot holds the reason
)

const frameSize = 32

// frame is one message on the local socket.
//
//	0      1      4        8     16     24
//	type   op     region   id    slot   bytes
//	uint8  uint8  uint32   u64   u32    u64     big endian
//
// A device frame holds only the UUID in bytes 8 to 23, and 1 in byte 2 for a MIG
// instance. A descriptor frame with slot 0 comes with one file descriptor (SCM_RIGHTS).
// If slot is not 0, it is the CUresult of the failure. No other frame comes with file
// descriptors.
type frame struct {
	typ    frameType
	op     transport.Op
	region uint32 // the target's region
	id     uint64 // the transfer's ID
	slot   uint32 // the initiator's slot for the transfer, echoed by the target; in a descriptor frame, the CUresult
	bytes  uint64 // the transfer's bytes
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

// descriptors returns the number of file descriptors that come with the frame.
func (f frame) descriptors() int {
	if f.typ == frameDescriptor && f.slot == 0 {
		return 1
	}
	return 0
}

// parseFrame reads a frame and checks everything that needs no state.
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
