package intake

import (
	"errors"
	"net"
	"testing"

	"kvbench/transport"
)

func TestAddress(t *testing.T) {
	listens := &net.TCPAddr{IP: net.IPv6loopback, Port: 9}
	for advertise, want := range map[string]string{"": "[::1]:9", "decode-7.example": "decode-7.example:9", "fd00::7": "[fd00::7]:9"} {
		a, err := NewAddress(listens, advertise)
		if err != nil || a.HostPort != want || len(a.Secret) != 16 {
			t.Errorf("advertised as %q: %+v, %v; want %s and 16 bytes", advertise, a, err, want)
		}
		told, err := ParseAddress(a.Encode())
		if err != nil || told.HostPort != want || !told.Admits(a.Secret) {
			t.Errorf("%+v was read as %+v, %v", a, told, err)
		}
		other, err := NewAddress(listens, advertise)
		if err != nil || told.Admits(other.Secret) || told.Admits(a.Secret[:15]) || told.Admits(nil) {
			t.Errorf("let in with another secret (%v)", err)
		}
	}
	if _, err := NewAddress(&net.UnixAddr{Name: "@kvbench"}, ""); err == nil {
		t.Error("an address of no port")
	}
}

// TestAddressFrom: of all addresses the zone of a link-local one alone is the dialler's.
func TestAddressFrom(t *testing.T) {
	for _, c := range []struct{ address, zone, want string }{
		{"[fe80::2%eth7]:9", "eth0", "[fe80::2%eth0]:9"},
		{"[fe80::2]:9", "eth0", "[fe80::2%eth0]:9"},
		{"[fe80::2%eth7]:9", "", "[fe80::2%eth7]:9"},
		{"[fd00::2]:9", "eth0", "[fd00::2]:9"},
		{"169.254.0.2:9", "eth0", "169.254.0.2:9"},
		{"decode-7.example:9", "eth0", "decode-7.example:9"},
	} {
		if got := (Address{HostPort: c.address}).From(c.zone); got != c.want {
			t.Errorf("%s from zone %q is %s, want %s", c.address, c.zone, got, c.want)
		}
	}
}

func TestParseAddress(t *testing.T) {
	secret := `"secret":"AAAAAAAAAAAAAAAAAAAAAA=="`
	for name, text := range map[string]string{
		"empty":        ``,
		"no JSON":      `127.0.0.1:9`,
		"no secret":    `{"host_port":"127.0.0.1:9"}`,
		"short secret": `{"host_port":"127.0.0.1:9","secret":"AAAA"}`,
		"no port":      `{"host_port":"127.0.0.1",` + secret + `}`,
		"port 0":       `{"host_port":"127.0.0.1:0",` + secret + `}`,
		"port 65536":   `{"host_port":"127.0.0.1:65536",` + secret + `}`,
		"named port":   `{"host_port":"127.0.0.1:http",` + secret + `}`,
	} {
		if a, err := ParseAddress([]byte(text)); !errors.Is(err, transport.ErrProtocol) {
			t.Errorf("%s: %+v, %v; want ErrProtocol", name, a, err)
		}
	}
}

// FuzzAddress: an address that is let through can be dialled and told on.
func FuzzAddress(f *testing.F) {
	f.Add([]byte(`{"host_port":"[::1]:9","secret":"AAAAAAAAAAAAAAAAAAAAAA=="}`))
	f.Add([]byte(`{"host_port":"127.0.0.1:65536"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := ParseAddress(b)
		if err != nil {
			if !errors.Is(err, transport.ErrProtocol) {
				t.Errorf("%v does not wrap ErrProtocol", err)
			}
			return
		}
		told := a.Encode()
		if again, err := ParseAddress(told); err != nil || string(again.Secret) != string(a.Secret) {
			t.Errorf("%q became %q: %v", b, told, err)
		}
	})
}
