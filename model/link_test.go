package model

import (
	"errors"
	"math"
	"strings"
	"testing"
)

// near fails unless got is within a share of want.
func near(t *testing.T, what string, got, want, share float64) {
	t.Helper()
	if !(math.Abs(got-want) <= share*math.Abs(want)) {
		t.Errorf("%s: %g, want %g within %g %%", what, got, want, 100*share)
	}
}

func mustLink(t *testing.T, s string) Link {
	t.Helper()
	l, err := ParseLink(s)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestParseLinkNames(t *testing.T) {
	want := map[string]float64{
		"25gbe": 3.125e9, "100gbe": 12.5e9, "200gbe": 25e9, "400gbe": 50e9,
		"ib-hdr": 25e9, "ib-ndr": 50e9, "ib-xdr": 100e9,
		"nvlink3": 300e9, "nvlink4": 450e9, "nvlink5": 900e9,
		"pcie4x16": 31.508e9, "pcie5x16": 63.015e9,
	}
	if len(LinkNames()) != len(want) {
		t.Errorf("%d names, want %d", len(LinkNames()), len(want))
	}
	for name, rate := range want {
		if l := mustLink(t, strings.ToUpper(name)); l.Name != name || l.BytesPerSecond != rate {
			t.Errorf("%s: %+v, want %g B/s", name, l, rate)
		}
	}
}

// 16 lanes of 16 and 32 GT/s, 128 of 130 bits data, 8 bits a byte.
func TestPCIeRatesComeFromLanes(t *testing.T) {
	near(t, "pcie4x16", mustLink(t, "pcie4x16").BytesPerSecond, 16*16e9*128/130/8, 1e-4)
	near(t, "pcie5x16", mustLink(t, "pcie5x16").BytesPerSecond, 16*32e9*128/130/8, 1e-4)
}

func TestParseLinkRates(t *testing.T) {
	for _, c := range []struct {
		in, name string
		rate     float64
	}{
		{"1Gbit/s", "1Gbit/s", 125e6},
		{"200mbit/s", "200Mbit/s", 25e6},
		{"12.5GB/s", "100Gbit/s", 12.5e9},
		{"10gbps", "10Gbit/s", 1.25e9},
		{"0.1Gbit/s", "100Mbit/s", 12.5e6},
		{"1.6Tbit/s", "1.6Tbit/s", 200e9},
		{"31.508GB/s", "252.064Gbit/s", 31.508e9},
	} {
		l := mustLink(t, c.in)
		if l.Name != c.name || l.Kind != Ethernet {
			t.Errorf("%s: %+v, want name %s", c.in, l, c.name)
		}
		near(t, c.in, l.BytesPerSecond, c.rate, 1e-12)
		near(t, c.in+" again", mustLink(t, l.Name).BytesPerSecond, c.rate, 1e-12)
	}
}

func TestParseLinkSuggests(t *testing.T) {
	for in, want := range map[string]string{
		"100gb": "100gbe", "ndr": "ib-ndr", "nvlink": "nvlink3", "pcie5": "pcie5x16", "40gbe": "400gbe",
		"": "25gbe", "100": "100gbe", "0Gbit/s": "above zero", "-1Gbit/s": "25gbe", "NaN": "",
	} {
		_, err := ParseLink(in)
		if !errors.Is(err, ErrUnknownLink) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want a suggestion of %q", in, err, want)
		}
	}
}

func TestOverRDMA(t *testing.T) {
	if k := mustLink(t, "100gbe").OverRDMA().Kind; k != RoCE {
		t.Errorf("100gbe over RDMA is %s", k)
	}
	if k := mustLink(t, "ib-ndr").OverRDMA().Kind; k != InfiniBand {
		t.Errorf("ib-ndr over RDMA is %s", k)
	}
}
