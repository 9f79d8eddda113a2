package bench

import (
	"strings"
	"testing"
	"time"

	"kvbench/internal/hostinfo"
	"kvbench/model"
	"kvbench/transport"
)

// TestPathOfTheData: what is said of the link comes from the device that carried the
// data, which need not be the one by which the two sides met. Here they meet over eno1
// at 25 Gbit/s (3.125e9 B/s), MTU 1500, whose goodput under TCP is 1448/1538 of that.
func TestPathOfTheData(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	eno1 := hostinfo.Device{Name: "eno1", MTU: 1500, BytesPerSecond: 3.125e9}
	over := func(device string, p *transport.Port) transport.Path {
		return transport.Path{Lane: "some/" + device, Device: device, Port: p}
	}
	roce := func(rate float64, mtu int) *transport.Port {
		return &transport.Port{Link: transport.RoCE, MTU: mtu, BytesPerSecond: rate}
	}
	infiniband := &transport.Port{Link: transport.InfiniBand, BytesPerSecond: 50e9}
	for _, c := range []struct {
		name               string
		producer, consumer transport.Path
		link               string // --link; empty: auto
		mtu                int
		want               string // the record's link; empty: none
		rate, factor       float64
		mtuWant            int
		limiter, evidence  string
	}{
		{"TCP, auto", over("eno1", nil), over("eno1", nil), "", 0, "eno1", 3.125e9, 1448.0 / 1538, 1500, "unexplained", ""},
		{"TCP on a link named too fast", over("eno1", nil), over("eno1", nil), "400gbe", 0, "400gbe", 50e9, 1448.0 / 1538, 1500, "slower device", "eno1 runs at 25 Gbit/s"},
		{"RoCE, auto", over("mlx5_0:1", roce(50e9, 4096)), over("mlx5_1:1", roce(50e9, 4096)), "", 0, "mlx5_0:1", 50e9, 4096.0 / 4178, 4096, "unexplained", ""},
		{"RoCE in frames of 1500", over("mlx5_0:1", roce(50e9, 1024)), over("mlx5_1:1", roce(50e9, 1024)), "", 0, "mlx5_0:1", 50e9, 1024.0 / 1106, 1024, "unexplained", ""},
		{"RoCE, named", over("mlx5_0:1", roce(50e9, 4096)), over("mlx5_1:1", roce(50e9, 4096)), "400gbe", 0, "400gbe", 50e9, 4096.0 / 4178, 4096, "unexplained", ""},
		{"RoCE, an Ethernet MTU given", over("mlx5_0:1", roce(50e9, 4096)), over("mlx5_1:1", roce(50e9, 4096)), "400gbe", 1500, "400gbe", 50e9, 1024.0 / 1106, 1500, "unexplained", ""},
		{"the other side's port is slower", over("mlx5_0:1", roce(50e9, 4096)), over("mlx5_1:1", roce(12.5e9, 4096)), "400gbe", 0, "400gbe", 50e9, 4096.0 / 4178, 4096, "slower device", "mlx5_1:1 runs at 100 Gbit/s"},
		{"InfiniBand, auto", over("mlx5_0:1", infiniband), over("mlx5_0:1", infiniband), "", 0, "mlx5_0:1", 50e9, 4096.0 / 4122, 4096, "unexplained", ""},
		{"InfiniBand, a rate", over("mlx5_0:1", infiniband), over("mlx5_0:1", infiniband), "400Gbit/s", 0, "400Gbit/s", 50e9, 4096.0 / 4122, 4096, "unexplained", ""},
		{"InfiniBand, a rate and IP's MTU", over("mlx5_0:1", infiniband), over("mlx5_0:1", infiniband), "400Gbit/s", 9000, "400Gbit/s", 50e9, 4096.0 / 4122, 4096, "unexplained", ""},
		{"InfiniBand, named", over("mlx5_0:1", infiniband), over("mlx5_0:1", infiniband), "ib-ndr", 0, "ib-ndr", 50e9, 4096.0 / 4122, 4096, "unexplained", ""},
		{"Soft-RoCE, auto", over("rxe0:1", roce(0, 1024)), over("rxe0:1", roce(0, 1024)), "", 0, "", 0, 0, 0, "", ""},
		{"an interface that nobody looked at", over("eth7", nil), over("eth7", nil), "", 0, "", 0, 0, 0, "", ""},
		{"GPU to GPU", over("cuda:0", nil), over("cuda:1", nil), "", 0, "", 0, 0, 0, "", ""},
		{"GPU to GPU, named", over("cuda:0", nil), over("cuda:1", nil), "nvlink4", 0, "nvlink4", 450e9, 1, 0, "unexplained", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := outcomeOf(t, measuredAs(900*ms, 900*ms, 900*ms, 900*ms, 900*ms))
			o.Producer.Host.Device, o.Consumer.Host.Device = eno1, eno1
			o.Path, o.PeerPath = c.producer, c.consumer
			a := Assumptions{MTU: c.mtu, Source: "flag", Judge: Judge{Tolerance: 0.1, Against: []string{"spec"}}}
			if c.link != "" {
				l, err := model.ParseLink(c.link)
				if err != nil {
					t.Fatal(err)
				}
				a.Link = &l
			}
			run, err := Summarize(o, a, nil)
			if err != nil {
				t.Fatal(err)
			}
			if l := run.Link; c.want == "" {
				if l != nil {
					t.Fatalf("link %+v, of which nothing is known", *l)
				}
				return
			} else if l == nil {
				t.Fatal("no link")
			} else if l.Name != c.want || l.BytesPerSecond != c.rate || !close6(l.FramingFactor, c.factor) || l.MTU != c.mtuWant {
				t.Errorf("link %+v, want %s of %g B/s, %.6f of it payload at MTU %d", *l, c.want, c.rate, c.factor, c.mtuWant)
			}
			v := run.Cells[0].Verdict
			if v.Status != "fail" || v.Limiter != c.limiter || !strings.Contains(v.Evidence, c.evidence) {
				t.Errorf("verdict %+v, want %s that says %q", v, c.limiter, c.evidence)
			}
		})
	}
}

// close6 compares to six digits.
func close6(a, b float64) bool { return a > b*(1-1e-6) && a < b*(1+1e-6) }
