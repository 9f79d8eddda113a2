package model

import (
	"math"
	"testing"
)

// The figures that circulate for LLaMA-2-70B use 320,000 bytes a token, K = 1000
// tokens and NVLink's two directions together. docs/predictions.md explains them.
func TestCirculatingFigures(t *testing.T) {
	rounded := func(tokens, bytesPerToken float64, rate float64) float64 { return tokens * bytesPerToken / rate * 1e3 }
	const nvlinkBoth = 900e9
	hundred, ndr := mustLink(t, "100gbe").BytesPerSecond, mustLink(t, "ib-ndr").BytesPerSecond
	for _, c := range []struct {
		what   string
		ms     float64
		digits int
		want   float64
	}{
		{"1K on 100GbE", rounded(1000, 320e3, hundred), 2, 26},
		{"4K on 100GbE", rounded(4000, 320e3, hundred), 3, 102},
		{"32K on 100GbE", rounded(32000, 320e3, hundred), 3, 819},
		{"8K on InfiniBand NDR", rounded(8000, 320e3, ndr), 2, 51},
		{"4K in FP8 on 100GbE", rounded(4000, 160e3, hundred), 2, 51},
		{"4K on NVLink", rounded(4000, 320e3, nvlinkBoth), 2, 1.4},
		{"32K on NVLink", rounded(32000, 320e3, nvlinkBoth), 2, 11},
	} {
		if got := toDigits(c.ms, c.digits); got != c.want {
			t.Errorf("%s: %g ms, circulating %g", c.what, got, c.want)
		}
	}
	// 73x divides two rounded figures; unrounded the convention gives 72.
	if got := math.Round(102 / 1.4); got != 73 {
		t.Errorf("102/1.4 is %g", got)
	}
	near(t, "unrounded", nvlinkBoth/hundred, 72, 1e-12)
}

// What the conventions hide: 4.86 % of the bytes, half of NVLink.
func TestCirculatingAgainstExact(t *testing.T) {
	near(t, "bytes", 327680*1024/(320e3*1000), 1.0486, 1e-4)
	nvlink, hundred := mustLink(t, "nvlink4").BytesPerSecond, mustLink(t, "100gbe").BytesPerSecond
	near(t, "NVLink to 100GbE", nvlink/hundred, 36, 1e-12)
	off := Framing{Mode: FramingOff}
	near(t, "4K on NVLink, ms", 1e3*SpecCost(mustLink(t, "nvlink4"), 0, off, 0, 0).Seconds(80, 80, 327680*4096), 2.983, 1e-3)

	// "1.13 GB" is 1.125 GiB; "90 Gbit/s" for ten a second of it is 96.6, and at MTU
	// 1500 a 100GbE link carries 94.2 of payload.
	near(t, "1.125 GiB", opt66b512/float64(1<<30), 1.125, 1e-12)
	near(t, "the 90 of the papers", 8*10*1.13e9, 90e9, 0.01)
	offered := 8 * OfferedBytesPerSecond(10, opt66b512)
	near(t, "really", offered, 96.6e9, 1e-3)
	goodput, _, _ := mustLink(t, "100gbe").Goodput(1500, Framing{})
	if offered < 8*goodput {
		t.Errorf("%g bit/s fits %g", offered, 8*goodput)
	}

	// "1K prefill takes a few ms": at the full peak of eight H100 it takes 17.9.
	p := llama70B
	p.GPUs, p.PeakFLOPs, p.MFU = 8, 989e12, 1
	near(t, "1K at full peak, ms", 1e3*p.Seconds(1024, 0), 17.9, 2e-3)
}

// The exact times as a wire delivers them: TCP at MTU 1500, InfiniBand at 4096.
func TestExactWithFraming(t *testing.T) {
	for _, c := range []struct {
		link          string
		tokens        int64
		bytesPerToken int64
		ms            float64
	}{
		{"100gbe", 1024, 327680, 28.51},
		{"100gbe", 4096, 327680, 114.0},
		{"100gbe", 32768, 327680, 912.4},
		{"100gbe", 4096, 163840, 57.02},
		{"ib-ndr", 8192, 327680, 54.03},
	} {
		got := 1e3 * SpecCost(mustLink(t, c.link), 0, Framing{}, 0, 0).Seconds(80, 80, c.bytesPerToken*c.tokens)
		near(t, c.link, got, c.ms, 5e-4)
	}
}

// toDigits rounds to significant digits.
func toDigits(v float64, digits int) float64 {
	scale := math.Pow(10, float64(digits-1)-math.Floor(math.Log10(v)))
	return math.Round(v*scale) / scale
}
