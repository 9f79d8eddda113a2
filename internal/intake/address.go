package intake

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"kvbench/transport"
)

// SecretSize is the size of an address's secret in bytes.
const SecretSize = 16

// Address is the address of a listener on TCP. Its secret proves that the dialler
// received the address, so an address must travel only on an authenticated channel.
type Address struct {
	HostPort string `json:"host_port"`
	Secret   []byte `json:"secret"`
}

// NewAddress returns the address of a listener. It names the host advertise, or the
// listener's host if advertise is empty.
func NewAddress(listens net.Addr, advertise string) (Address, error) {
	host, port, err := net.SplitHostPort(listens.String())
	if err != nil {
		return Address{}, err
	}
	if advertise != "" {
		host = advertise
	}
	a := Address{HostPort: net.JoinHostPort(host, port), Secret: make([]byte, SecretSize)}
	rand.Read(a.Secret)
	return a, nil
}

// From returns the host and port to dial. For a link-local address it replaces the
// listener's zone with the dialler's zone, because a zone names an interface of one
// host. If zone is empty, the address stays unchanged.
func (a Address) From(zone string) string {
	host, port, err := net.SplitHostPort(a.HostPort)
	ip, errIP := netip.ParseAddr(host)
	if err != nil || errIP != nil || zone == "" || !ip.Is6() || !ip.IsLinkLocalUnicast() {
		return a.HostPort
	}
	return net.JoinHostPort(ip.WithZone(zone).String(), port)
}

// Encode returns the address in the form that ParseAddress reads.
func (a Address) Encode() []byte {
	b, err := json.Marshal(a)
	if err != nil {
		panic(err) // two plain fields always encode
	}
	return b
}

// ParseAddress decodes and checks a listener's address. Its error wraps
// transport.ErrProtocol.
func ParseAddress(b []byte) (Address, error) {
	var a Address
	if err := json.Unmarshal(b, &a); err != nil {
		return a, fmt.Errorf("read data address: %w: %w", transport.ErrProtocol, err)
	}
	if len(a.Secret) != SecretSize {
		return a, fmt.Errorf("read data address: secret of %d bytes: %w", len(a.Secret), transport.ErrProtocol)
	}
	_, port, err := net.SplitHostPort(a.HostPort)
	if n, errPort := strconv.Atoi(port); err != nil || errPort != nil || n < 1 || n > 65535 {
		return a, fmt.Errorf("read data address %q: %w", a.HostPort, transport.ErrProtocol)
	}
	return a, nil
}

// Admits reports whether a dialler's secret is correct. It takes constant time, so that
// its duration reveals nothing about the secret.
func (a Address) Admits(secret []byte) bool {
	return subtle.ConstantTimeCompare(a.Secret, secret) == 1
}
