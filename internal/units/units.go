// Package units reads and prints the quantities of the command line: bytes, byte rates,
// token counts. Inside the program they are in base units (bytes, bytes a second, tokens).
// Only input and output are scaled.
//
// Decimal prefixes mean powers of 1000 (GB, Gbit/s) and binary ones powers of 1024 (GiB).
// Token counts follow the field's exception: 4K tokens are 4096.
package units

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ErrSyntax is returned, wrapped, when a quantity cannot be read.
var ErrSyntax = errors.New("not a quantity")

var byteScale = map[string]float64{
	"": 1, "b": 1,
	"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
	"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40,
	"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
}

var tokenScale = map[string]float64{"": 1, "k": 1 << 10, "m": 1 << 20}

var rateScale = map[string]float64{
	"b/s": 1, "kb/s": 1e3, "mb/s": 1e6, "gb/s": 1e9, "tb/s": 1e12,
	"kib/s": 1 << 10, "mib/s": 1 << 20, "gib/s": 1 << 30,
	"bit/s": 1.0 / 8, "kbit/s": 1e3 / 8, "mbit/s": 1e6 / 8, "gbit/s": 1e9 / 8, "tbit/s": 1e12 / 8,
	"bps": 1.0 / 8, "kbps": 1e3 / 8, "mbps": 1e6 / 8, "gbps": 1e9 / 8, "tbps": 1e12 / 8,
}

// ParseBytes reads a size such as 4096, 64MiB, 1.5GB or 2g and returns bytes. Short
// suffixes are binary, as in other tools.
func ParseBytes(s string) (int64, error) {
	n, err := parse(s, byteScale, "bytes such as 4096, 64MiB or 1GB")
	return int64(n), err
}

// ParseTokens reads a token count such as 512, 4K (4096) or 1M and returns tokens.
func ParseTokens(s string) (int64, error) {
	n, err := parse(s, tokenScale, "tokens such as 512, 4K (4096) or 1M")
	if err == nil && n != math.Trunc(n) {
		return 0, fmt.Errorf("%q is not a whole number of tokens: %w", s, ErrSyntax)
	}
	return int64(n), err
}

// ParseRate reads a rate such as 100Gbit/s, 12.5GB/s or 10gbps and returns bytes a second.
// A bare number is an error: it has no unit.
func ParseRate(s string) (float64, error) {
	return parse(s, rateScale, "a rate such as 100Gbit/s or 12.5GB/s")
}

// parse splits s into a number and a suffix and scales it. The result is
// non-negative and fits an int64.
func parse(s string, scale map[string]float64, want string) (float64, error) {
	t := strings.ToLower(strings.TrimSpace(s))
	i := strings.IndexFunc(t, func(r rune) bool { return (r < '0' || r > '9') && r != '.' && r != '-' && r != '+' })
	if i < 0 {
		i = len(t)
	}
	k, ok := scale[strings.TrimSpace(t[i:])]
	n, err := strconv.ParseFloat(t[:i], 64)
	if err != nil || !ok {
		return 0, fmt.Errorf("%q is not %s: %w", s, want, ErrSyntax)
	}
	n *= k
	if n < 0 {
		return 0, fmt.Errorf("%q is negative: %w", s, ErrSyntax)
	}
	if n > math.MaxInt64/2 {
		return 0, fmt.Errorf("%q is too large: %w", s, ErrSyntax)
	}
	return n, nil
}

// Bytes prints a size in decimal units with four significant digits: 335.5 MB.
func Bytes(n int64) string { return decimal(float64(n), "B") }

// BinaryBytes prints a size in binary units: 320 MiB.
func BinaryBytes(n int64) string {
	return scaled(float64(n), 1024, []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"})
}

// Rate prints bytes a second in decimal units: 12.5 GB/s.
func Rate(bytesPerSecond float64) string { return decimal(bytesPerSecond, "B/s") }

// BitRate prints bytes a second as a link's bit rate: 100 Gbit/s.
func BitRate(bytesPerSecond float64) string { return decimal(bytesPerSecond*8, "bit/s") }

// Seconds prints a time span with the unit that suits four significant digits: 26.84 ms.
func Seconds(s float64) string {
	switch {
	case s == 0:
		return "0 s"
	case math.Abs(s) >= 1:
		return significant(s) + " s"
	}
	return scaled(s*1e9, 1000, []string{"ns", "µs", "ms", "s"})
}

// Tokens prints a token count, with K if it is a multiple of 1024.
func Tokens(n int64) string {
	if n >= 1024 && n%1024 == 0 {
		return strconv.FormatInt(n/1024, 10) + "K"
	}
	return strconv.FormatInt(n, 10)
}

func decimal(v float64, unit string) string {
	return scaled(v, 1000, []string{unit, "k" + unit, "M" + unit, "G" + unit, "T" + unit, "P" + unit, "E" + unit})
}

// scaled prints v in the first of units, each base times the one before, that
// leaves it below base as printed: 999.96 B is 1 kB, not 1000 B.
func scaled(v, base float64, units []string) string {
	i := 0
	for i < len(units)-1 && math.Abs(round(v)) >= base {
		v, i = v/base, i+1
	}
	return significant(v) + " " + units[i]
}

// round rounds v to four significant digits.
func round(v float64) float64 {
	r, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64)
	return r
}

// significant prints v with four significant digits and no trailing zeros,
// never in exponent form.
func significant(v float64) string { return strconv.FormatFloat(round(v), 'f', -1, 64) }

// Count prints a number of things, such as 1 request or 2 requests. The noun's plural ends in s.
func Count[N int | int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
