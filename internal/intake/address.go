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

// SecretSize is the bytes of an address's secret.
const SecretSize = 16

// Address is what a dialler needs of a listener on TCP: where it is, and a secret that shows
// that the dialler was given it, so that it travels on an authenticated channel only.
type Address struct {
	HostPort string `json:"host_port"`
	Secret   []byte `json:"secret"`
}

// NewAddress makes the address of a listener, which names the host advertise instead of
// its own if that is not empty.
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

// From is where a dialler reaches the listener that has a zone of its own, or none, to dial
// link-local addresses in: the listener named its own interface.
func (a Address) From(zone string) string {
	host, port, err := net.SplitHostPort(a.HostPort)
	ip, errIP := netip.ParseAddr(host)
	if err != nil || errIP != nil || zone == "" || !ip.Is6() || !ip.IsLinkLocalUnicast() {
		return a.HostPort
	}
	return net.JoinHostPort(ip.WithZone(zone).String(), port)
}

// Encode is what ParseAddress reads.
func (a Address) Encode() []byte {
	b, err := json.Marshal(a)
	if err != nil {
		panic(err) // two plain fields always encode
	}
	return b
}

// ParseAddress reads what a listener said of itself. Its error wraps transport.ErrProtocol.
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

// Admits reports whether a dialler's secret is the address's. How long that takes says
// nothing of it.
func (a Address) Admits(secret []byte) bool {
	return subtle.ConstantTimeCompare(a.Secret, secret) == 1
}
