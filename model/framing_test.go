package model

import (
	"errors"
	"strings"
	"testing"
)

func TestFramingFactors(t *testing.T) {
	roce := func(s string) Link { return mustLink(t, s).OverRDMA() }
	shaped := Framing{Mode: FramingShaped}
	for _, c := range []struct {
		link    Link
		mtu     int
		framing Framing
		want    float64
	}{
		// TCP with timestamps; preamble and gap counted.
		{mustLink(t, "100gbe"), 1500, Framing{}, 0.9415},
		{mustLink(t, "100gbe"), 0, Framing{}, 0.9415},
		{mustLink(t, "100gbe"), 9000, Framing{}, 0.9900},
		// What tbf counts: 1448 of 1514 and 8948 of 9014.
		{mustLink(t, "1Gbit/s"), 1500, shaped, 0.9564},
		{mustLink(t, "1Gbit/s"), 9000, shaped, 0.9927},
		{roce("100gbe"), 1024, Framing{}, 0.926},
		{roce("100gbe"), 2048, Framing{}, 0.962},
		{roce("100gbe"), 4096, Framing{}, 0.980},
		{roce("100gbe"), 0, Framing{}, 0.980},
		// Ethernet MTUs: the largest RoCE MTU that fits is 1024 in 1500, 4096 in 4200 and 9000.
		{roce("100gbe"), 1500, Framing{}, 0.926},
		{roce("100gbe"), 4200, Framing{}, 0.980},
		{roce("100gbe"), 9000, Framing{}, 0.980},
		{roce("100gbe"), 4096, shaped, 4096.0 / 4154},
		{mustLink(t, "ib-ndr"), 4096, Framing{}, 0.994},
		{mustLink(t, "ib-ndr"), 0, Framing{}, 0.994},
		{mustLink(t, "pcie5x16"), 128, Framing{}, 0.84},
		{mustLink(t, "pcie5x16"), 256, Framing{}, 0.91},
		{mustLink(t, "pcie5x16"), 0, Framing{}, 0.91},
		{mustLink(t, "pcie5x16"), 512, Framing{}, 0.96},
		{mustLink(t, "nvlink4"), 0, Framing{}, 1},
		{Link{Kind: Raw, BytesPerSecond: 1e9}, 0, Framing{}, 1},
		{mustLink(t, "100gbe"), 1500, Framing{Mode: FramingOff}, 1},
		{mustLink(t, "100gbe"), 1500, Framing{Mode: FramingFixed, Factor: 0.94}, 0.94},
	} {
		rate, factor, basis := c.link.Goodput(c.mtu, c.framing)
		near(t, basis, factor, c.want, 0.006) // the published factors have two or three digits
		if c.link.Kind == Ethernet && factor != c.want {
			near(t, basis, factor, c.want, 1e-4)
		}
		near(t, basis+" rate", rate, c.link.BytesPerSecond*factor, 1e-12)
		if basis == "" {
			t.Error("no basis")
		}
	}
}

// 1 Gbit/s shaped by tbf at MTU 1500 delivers 125e6·1448/1514 = 119.551e6 B/s of payload.
func TestShapedGoodputIsGroundTruth(t *testing.T) {
	rate, _, basis := mustLink(t, "1Gbit/s").Goodput(1500, Framing{Mode: FramingShaped})
	near(t, basis, rate, 119.551e6, 1e-5)
}

func TestGoodputRefuses(t *testing.T) {
	for _, c := range []struct {
		link    Link
		mtu     int
		framing Framing
	}{
		{mustLink(t, "100gbe"), 52, Framing{}},
		{mustLink(t, "100gbe"), -1, Framing{}},
		{mustLink(t, "100gbe"), 1 << 20, Framing{}},
		{mustLink(t, "100gbe").OverRDMA(), 300, Framing{}},
		{mustLink(t, "ib-ndr"), 1500, Framing{}},
		{mustLink(t, "ib-ndr"), 0, Framing{Mode: FramingShaped}},
		{mustLink(t, "100gbe"), 0, Framing{Mode: FramingFixed}},
	} {
		err := c.link.Check(c.mtu, c.framing)
		if !errors.Is(err, ErrFraming) {
			t.Errorf("%s MTU %d %v: %v", c.link.Name, c.mtu, c.framing, err)
		}
		if rate, factor, basis := c.link.Goodput(c.mtu, c.framing); rate != 0 || factor != 0 || !strings.Contains(basis, "bad framing") {
			t.Errorf("%s MTU %d: goodput %g, factor %g, %q", c.link.Name, c.mtu, rate, factor, basis)
		}
	}
}

func TestParseFraming(t *testing.T) {
	for in, want := range map[string]Framing{
		"auto": {}, "": {}, "OFF": {Mode: FramingOff}, "shaped": {Mode: FramingShaped},
		"0.94": {Mode: FramingFixed, Factor: 0.94}, "1": {Mode: FramingFixed, Factor: 1},
	} {
		got, err := ParseFraming(in)
		if err != nil || got != want {
			t.Errorf("%q: %v, %v", in, got, err)
		}
		if again, err := ParseFraming(got.String()); err != nil || again != want {
			t.Errorf("%q printed as %q reads back as %v, %v", in, got, again, err)
		}
	}
	for _, in := range []string{"0", "1.01", "-1", "NaN", "jumbo"} {
		if _, err := ParseFraming(in); !errors.Is(err, ErrFraming) {
			t.Errorf("%q: %v", in, err)
		}
	}
}
