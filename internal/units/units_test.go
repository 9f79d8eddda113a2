package units

import (
	"errors"
	"math"
	"strings"
	"testing"
)

func TestParseBytes(t *testing.T) {
	for in, want := range map[string]int64{
		"0": 0, "4096": 4096, "1b": 1, "1kB": 1000, "1K": 1024, "1KiB": 1024, "64MiB": 64 << 20, "1GB": 1e9,
		"1.5GB": 1.5e9, "2g": 2 << 30, "1t": 1 << 40, "1TB": 1e12, " 7 kb ": 7000, "+5": 5, "0.5k": 512, "-0": 0,
		"4611686018427387904": 1 << 62,
	} {
		if got, err := ParseBytes(in); err != nil || got != want {
			t.Errorf("ParseBytes(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
}

func TestParseTokens(t *testing.T) {
	for in, want := range map[string]int64{"0": 0, "512": 512, "1K": 1024, "1k": 1024, "128K": 131072, "1M": 1 << 20, "0.5K": 512, "1000000000": 1e9} {
		if got, err := ParseTokens(in); err != nil || got != want {
			t.Errorf("ParseTokens(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 requests", 1: "1 request", 2: "2 requests", 1000: "1000 requests"} {
		if got := Count(n, "request"); got != want {
			t.Errorf("Count(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestParseRate(t *testing.T) {
	for in, want := range map[string]float64{
		"100Gbit/s": 12.5e9, "12.5GB/s": 12.5e9, "10gbps": 1.25e9, "1bit/s": 0.125, "8bps": 1, "1MiB/s": 1 << 20, "0Gbit/s": 0, "1Tbit/s": 125e9,
	} {
		if got, err := ParseRate(in); err != nil || got != want {
			t.Errorf("ParseRate(%q) = %g, %v; want %g", in, got, err, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	bytes := func(s string) error { _, err := ParseBytes(s); return err }
	tokens := func(s string) error { _, err := ParseTokens(s); return err }
	rate := func(s string) error { _, err := ParseRate(s); return err }
	for _, c := range []struct {
		parse func(string) error
		in    string
		says  string
	}{
		{bytes, "", "is not bytes"},
		{bytes, "GB", "is not bytes"},
		{bytes, "1XB", "is not bytes"},
		{bytes, "1 2", "is not bytes"},
		{bytes, "1.2.3", "is not bytes"},
		{bytes, "--1", "is not bytes"},
		{bytes, "1e3", "is not bytes"},
		{bytes, "NaN", "is not bytes"},
		{bytes, "inf", "is not bytes"},
		{bytes, "0x10", "is not bytes"},
		{bytes, "１", "is not bytes"},
		{bytes, "1GB/s", "is not bytes"},
		{bytes, "-1", "is negative"},
		{bytes, "9223372036854775807", "is too large"},
		{bytes, "99999999TiB", "is too large"},
		{tokens, "abc", "is not tokens"},
		{tokens, "-5", "is negative"},
		{tokens, "0.5", "is not a whole number"},
		{tokens, "1GB", "is not tokens"},
		{rate, "100", "is not a rate"},
		{rate, "100Gbit", "is not a rate"},
		{rate, "-1Gbit/s", "is negative"},
	} {
		if err := c.parse(c.in); !errors.Is(err, ErrSyntax) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: error %v, want ErrSyntax that says %q", c.in, err, c.says)
		}
	}
}

// TestPrint has the values at which a unit changes, and those that round to one.
func TestPrint(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Bytes(0), "0 B"},
		{Bytes(1), "1 B"},
		{Bytes(999), "999 B"},
		{Bytes(1000), "1 kB"},
		{Bytes(999_949), "999.9 kB"},
		{Bytes(999_960), "1 MB"},
		{Bytes(335_544_320), "335.5 MB"},
		{Bytes(-1500), "-1.5 kB"},
		{Bytes(math.MaxInt64), "9.223 EB"},
		{BinaryBytes(0), "0 B"},
		{BinaryBytes(1023), "1023 B"},
		{BinaryBytes(1024), "1 KiB"},
		{BinaryBytes(320 << 20), "320 MiB"},
		{BinaryBytes(1<<20 - 1), "1 MiB"},
		{BinaryBytes(-1024), "-1 KiB"},
		{BinaryBytes(math.MaxInt64), "8 EiB"},
		{Rate(12.5e9), "12.5 GB/s"},
		{Rate(999.96), "1 kB/s"},
		{Rate(0.25), "0.25 B/s"},
		{Rate(2e21), "2000 EB/s"},
		{BitRate(12.5e9), "100 Gbit/s"},
		{BitRate(0.125), "1 bit/s"},
		{BitRate(124.996), "1 kbit/s"},
		{Seconds(0), "0 s"},
		{Seconds(1e-9), "1 ns"},
		{Seconds(2.5e-10), "0.25 ns"},
		{Seconds(999.96e-9), "1 µs"},
		{Seconds(999.94e-6), "999.9 µs"},
		{Seconds(0.02684), "26.84 ms"},
		{Seconds(0.99996), "1 s"},
		{Seconds(1), "1 s"},
		{Seconds(13743.9), "13740 s"},
		{Seconds(-0.5), "-500 ms"},
		{Tokens(0), "0"},
		{Tokens(512), "512"},
		{Tokens(1023), "1023"},
		{Tokens(1024), "1K"},
		{Tokens(1025), "1025"},
		{Tokens(131072), "128K"},
	} {
		if c.got != c.want {
			t.Errorf("printed %q, want %q", c.got, c.want)
		}
	}
}

// FuzzParse holds the parsers to what the printers print.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "4K", "64MiB", "1.5GB", "100Gbit/s", "-1", "1e400", "9223372036854775807", "..", "0.0000001tb", "1 µ"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseTokens(s)
		check(t, s, float64(n), err)
		if err == nil {
			if again, err := ParseTokens(Tokens(n)); err != nil || again != n {
				t.Errorf("%q is %d tokens, printed %q, read back %d, %v", s, n, Tokens(n), again, err)
			}
		}
		b, err := ParseBytes(s)
		check(t, s, float64(b), err)
		if err == nil && b < 1e15 {
			again, err := ParseBytes(Bytes(b))
			if err != nil || math.Abs(float64(again-b)) > 0.001*float64(b)+1 {
				t.Errorf("%q is %d bytes, printed %q, read back %d, %v", s, b, Bytes(b), again, err)
			}
		}
		r, err := ParseRate(s)
		check(t, s, r, err)
	})
}

func check(t *testing.T, s string, v float64, err error) {
	if err != nil && !errors.Is(err, ErrSyntax) {
		t.Errorf("%q: error %v is no ErrSyntax", s, err)
	}
	if err == nil && !(v >= 0 && v <= math.MaxInt64/2) {
		t.Errorf("%q read as %g", s, v)
	}
}
