package tcp

import (
	"encoding/binary"
	"fmt"

	"kvbench/transport"
)

// frameType is the kind of a frame.
type frameType uint8

const (
	frameWrite    frameType = iota + 1 // ranges of the target's region, then their payload
	frameReadReq                       // ranges of the target's region to send
	frameReadData                      // payload of the requested ranges, in their order
	frameAck                           // the sender's share of a WRITE on this stream is in place
	frameDone                          // the initiator's share of a READ on this stream has arrived
	frameAbort                         // the sender ends the connection; slot holds an abortCode
)

// abortCode is the reason why a peer ended the connection.
type abortCode uint32

const (
	abortProtocol abortCode = iota + 1
	abortRegion
	abortBounds
)

func (c abortCode) err() error {
	switch c {
	case abortRegion:
		return transport.Classify(fmt.Errorf("the peer refused the transfer: %w there", transport.ErrRegion), transport.ErrPeer)
	case abortBounds:
		return transport.Classify(fmt.Errorf("the peer refused the transfer: %w there", transport.ErrBounds), transport.ErrPeer)
	}
	return transport.Classify(fmt.Errorf("the peer refused the transfer as a %w", transport.ErrProtocol), transport.ErrPeer)
}

const (
	headerSize = 32
	rangeSize  = 16

	// maxRanges is the most ranges of one frame, so that a frame's header with its
	// table and its ranges fit the 1024 buffers of one writev.
	maxRanges = 1023

	flagLast = 1 // last frame of this stream's share of a transfer
)

// header is the fixed part of a frame.
//
//	0      1      2        4        8     16      20    24     32
//	type   flags  parts    ranges   id    region  slot  bytes
//	uint8  uint8  uint16   uint32   u64   uint32  u32   u64     big endian
type header struct {
	typ    frameType
	flags  uint8
	parts  uint16 // streams that share the transfer
	ranges uint32 // entries in the table that follows
	id     uint64 // the transfer's ID
	region uint32 // the target's region
	slot   uint32 // the initiator's slot for the transfer, echoed by the target
	bytes  uint64 // payload of this frame
}

func (h header) last() bool { return h.flags&flagLast != 0 }

func (h header) put(b []byte) {
	_ = b[headerSize-1]
	b[0], b[1] = byte(h.typ), h.flags
	binary.BigEndian.PutUint16(b[2:], h.parts)
	binary.BigEndian.PutUint32(b[4:], h.ranges)
	binary.BigEndian.PutUint64(b[8:], h.id)
	binary.BigEndian.PutUint32(b[16:], h.region)
	binary.BigEndian.PutUint32(b[20:], h.slot)
	binary.BigEndian.PutUint64(b[24:], h.bytes)
}

// parseHeader reads a frame header and checks everything that needs no state.
func parseHeader(b []byte) (header, error) {
	_ = b[headerSize-1]
	h := header{
		typ:    frameType(b[0]),
		flags:  b[1],
		parts:  binary.BigEndian.Uint16(b[2:]),
		ranges: binary.BigEndian.Uint32(b[4:]),
		id:     binary.BigEndian.Uint64(b[8:]),
		region: binary.BigEndian.Uint32(b[16:]),
		slot:   binary.BigEndian.Uint32(b[20:]),
		bytes:  binary.BigEndian.Uint64(b[24:]),
	}
	hasTable := h.typ == frameWrite || h.typ == frameReadReq
	switch {
	case h.typ < frameWrite || h.typ > frameAbort:
		return h, fmt.Errorf("frame type %d: %w", h.typ, transport.ErrProtocol)
	case h.flags&^flagLast != 0:
		return h, fmt.Errorf("frame flags %#x: %w", h.flags, transport.ErrProtocol)
	case h.ranges > maxRanges || (h.ranges > 0 && !hasTable):
		return h, fmt.Errorf("frame type %d with %d ranges: %w", h.typ, h.ranges, transport.ErrProtocol)
	case h.bytes > 1<<62:
		return h, fmt.Errorf("frame of %d bytes: %w", h.bytes, transport.ErrProtocol)
	case h.parts == 0 && h.typ != frameAbort:
		return h, fmt.Errorf("transfer of no parts: %w", transport.ErrProtocol)
	}
	return h, nil
}

// putRange writes one entry of a range table.
func putRange(b []byte, offset, length int64) {
	binary.BigEndian.PutUint64(b, uint64(offset))
	binary.BigEndian.PutUint64(b[8:], uint64(length))
}

// checkRanges reads the range table of h from b. It checks that every range lies in a
// region of size bytes and that the lengths sum to the frame's payload.
func checkRanges(h header, b []byte, size int64) error {
	var sum uint64
	for i := range int(h.ranges) {
		off, length := rangeAt(b, i)
		if off > uint64(size) || length > uint64(size)-off {
			return fmt.Errorf("range %d: %d bytes at offset %d of a region of %d: %w", i, length, off, size, transport.ErrBounds)
		}
		sum += length // at most maxRanges times size, so it cannot wrap
	}
	if sum != h.bytes {
		return fmt.Errorf("frame of %d bytes whose ranges sum to %d: %w", h.bytes, sum, transport.ErrProtocol)
	}
	return nil
}

func rangeAt(b []byte, i int) (offset, length uint64) {
	b = b[i*rangeSize:]
	return binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
}
