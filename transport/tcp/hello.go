package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"kvbench/internal/intake"
	"kvbench/transport"
)

const (
	wireVersion = 1
	secretSize  = intake.SecretSize
	helloSize   = 64

	maxStreams     = 1024
	maxOutstanding = 1 << 16
)

// role is the role of a connection's dialler.
type role uint8

const (
	initiatorRole role = iota + 1
	targetRole
)

// hello is the first message of a dialler on each stream.
type hello struct {
	secret      [secretSize]byte // from the listener's address
	conn        [secretSize]byte // the same on every stream of one connection
	role        role
	stream      uint16
	streams     uint16
	outstanding uint32
}

var helloMagic = [4]byte{'K', 'V', 'B', 'D'}

func (h hello) encode() []byte {
	b := make([]byte, helloSize)
	copy(b, helloMagic[:])
	b[4], b[5] = wireVersion, byte(h.role)
	binary.BigEndian.PutUint16(b[6:], h.stream)
	binary.BigEndian.PutUint16(b[8:], h.streams)
	binary.BigEndian.PutUint32(b[12:], h.outstanding)
	copy(b[16:], h.secret[:])
	copy(b[32:], h.conn[:])
	return b
}

// parseHello reads a hello and checks its limits.
func parseHello(b []byte) (hello, error) {
	var h hello
	if len(b) != helloSize || [4]byte(b[:4]) != helloMagic {
		return h, fmt.Errorf("not a kvbench data connection: %w", transport.ErrProtocol)
	}
	if b[4] != wireVersion {
		return h, fmt.Errorf("data protocol version %d, want %d: %w", b[4], wireVersion, transport.ErrProtocol)
	}
	h.role = role(b[5])
	h.stream = binary.BigEndian.Uint16(b[6:])
	h.streams = binary.BigEndian.Uint16(b[8:])
	h.outstanding = binary.BigEndian.Uint32(b[12:])
	h.secret = [secretSize]byte(b[16:])
	h.conn = [secretSize]byte(b[32:])
	if h.role != initiatorRole && h.role != targetRole {
		return h, fmt.Errorf("role %d: %w", h.role, transport.ErrProtocol)
	}
	if h.streams == 0 || h.streams > maxStreams || h.stream >= h.streams || h.outstanding == 0 || h.outstanding > maxOutstanding {
		return h, fmt.Errorf("stream %d of %d with %d transfers: %w", h.stream, h.streams, h.outstanding, transport.ErrProtocol)
	}
	return h, nil
}

// The listener's answer to a hello is one byte.
const (
	helloAccepted = 1
	helloRefused  = 2
)

// greet sends the hello on a dialled stream and waits for the answer.
func greet(c net.Conn, h hello) error {
	if _, err := c.Write(h.encode()); err != nil {
		return fmt.Errorf("greet the peer: %w: %w", transport.ErrPeer, err)
	}
	var answer [1]byte
	if _, err := io.ReadFull(c, answer[:]); err != nil {
		return fmt.Errorf("greet the peer: %w: %w", transport.ErrPeer, err)
	}
	if answer[0] != helloAccepted {
		return transport.Classify(errors.New("the peer refused this connection: a stale address, or another version of kvbench; run again, with the same kvbench on both hosts"), transport.ErrProtocol)
	}
	return nil
}
