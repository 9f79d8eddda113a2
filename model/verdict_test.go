package model

import (
	"math"
	"strings"
	"testing"
)

func TestCompare(t *testing.T) {
	one := Exactly(1)
	for _, c := range []struct {
		name                string
		measured, predicted Interval
		tolerance           float64
		want                Status
	}{
		{"equal", one, one, 0.15, Pass},
		{"at the edge", Exactly(1.149), one, 0.15, Pass},
		{"slow", Exactly(1.2), one, 0.15, Fail},
		{"fast", Exactly(0.8), one, 0.15, Fail},
		{"a hundred times slow", Interval{100, 90, 110}, one, 0.15, Fail},
		{"slow but unsure", Interval{1.2, 1.1, 1.3}, one, 0.15, Unchecked},
		{"prediction unsure", Exactly(1.2), Interval{1, 0.9, 1.1}, 0.15, Unchecked},
		{"inside, reaching one edge", Interval{1.1, 1, 1.3}, one, 0.15, Pass},
		{"inside, anything goes", Interval{1, 0.5, 2}, one, 0.15, Unchecked},
		{"not measured", Interval{}, one, 0.15, Unchecked},
		{"not predicted", one, Interval{}, 0.15, Unchecked},
		{"predicted never", one, Exactly(math.Inf(1)), 0.15, Unchecked},
		{"no tolerance", one, one, 0, Unchecked},
		{"predicted bound of zero", Exactly(1.2), Interval{1, 0, 1.1}, 0.15, Unchecked},
		{"NaN", Exactly(math.NaN()), one, 0.15, Unchecked},
	} {
		got := Compare(c.measured, c.predicted, c.tolerance)
		if got.Status != c.want || got.Reason == "" {
			t.Errorf("%s: %s (%s), want %s", c.name, got.Status, got.Reason, c.want)
		}
	}
}

func TestCompareRatioInterval(t *testing.T) {
	// 10 % up in the measurement alone, 20 % down in the prediction alone.
	c := Compare(Interval{2, 2, 2.2}, Interval{1, 1, 1}, 0.1)
	near(t, "ratio", c.Ratio.Value, 2, 1e-12)
	near(t, "high", c.Ratio.High, 2.2, 1e-12)
	near(t, "low", c.Ratio.Low, 2, 1e-12)
	c = Compare(Exactly(2), Interval{1, 0.8, 1}, 0.1)
	near(t, "high", c.Ratio.High, 2.5, 1e-12)
}

// Ranks from the binomial tables: of 10 samples the 2nd and 9th bracket the
// median at 97.9 %, of 20 the 6th and 15th at 95.9 %, of 100 the 40th and 61st at 96.5 %.
func TestMedianRanks(t *testing.T) {
	for n, rank := range map[int]float64{6: 1, 10: 2, 20: 6, 100: 40} {
		low, high := MedianRanks(n)
		near(t, "low", low*float64(n-1)+1, rank, 1e-9)
		near(t, "high", high*float64(n-1)+1, float64(n+1)-rank, 1e-9)
	}
	for _, n := range []int{0, 1, 5} {
		if low, high := MedianRanks(n); low != 0 || high != 1 {
			t.Errorf("%d samples: %g, %g", n, low, high)
		}
	}
	if low, _ := MedianRanks(1e7); math.Abs(low-0.5+0.98/math.Sqrt(1e7)) > 1e-6 {
		t.Errorf("10 million samples: %g", low)
	}
	if i := MedianInterval([]float64{1, 2, 3}); i != (Interval{2, 1, 3}) {
		t.Errorf("three samples: %v", i)
	}
}

func TestLimiters(t *testing.T) {
	fitted := Cost{AlphaSeconds: 1e-4, GammaSeconds: 3e-6, BytesPerSecond: 1e9}
	for _, c := range []struct {
		want, says string
		ratio      float64
		e          Evidence
	}{
		{LimiterDevice, "1 Gbit/s", 106, Evidence{GoodputBytesPerSecond: 118e6, LinkName: "100gbe", LinkBytesPerSecond: 12.5e9, DeviceName: "eth0", DeviceBytesPerSecond: 125e6}},
		{LimiterDevice, "shapes", 106, Evidence{GoodputBytesPerSecond: 119e6, LinkName: "100gbe", LinkBytesPerSecond: 12.5e9, DeviceName: "veth0", DeviceBytesPerSecond: 1.25e9}},
		{LimiterDescriptors, "4096 descriptors", 2, Evidence{Cost: fitted, Transfers: 1, Descriptors: 4096, Bytes: 4096 * 2048}},
		{LimiterQueueing, "4 requests", 3, Evidence{Concurrency: 4, Cost: fitted, Transfers: 1, Descriptors: 1, Bytes: 1e9, ServiceSeconds: 3.9}},
		{LimiterQueueing, "after it was due", 2, Evidence{ServiceSeconds: 1, ResponseSeconds: 3}},
		{LimiterRegistration, "registration", 2, Evidence{ServiceSeconds: 1, RegistrationSeconds: 0.5}},
		{LimiterRetransmits, "5000 of 1000000", 2, Evidence{Retransmits: 5000, Segments: 1e6}},
		{LimiterReceiveWindow, "40 %", 2, Evidence{ReceiveWindowLimited: 0.4}},
		{LimiterCPU, "consumer", 2, Evidence{ProducerCPU: 0.5, ConsumerCPU: 0.99}},
		{LimiterMemory, "copies", 2, Evidence{SameHost: true, GoodputBytesPerSecond: 3e9, CopyBytesPerSecond: 7e9}},
		{LimiterStream, "more streams", 3, Evidence{Streams: 1, GoodputBytesPerSecond: 4e9, StreamBytesPerSecond: 4.1e9, DeviceBytesPerSecond: 12.5e9, LinkBytesPerSecond: 12.5e9}},
		{LimiterPath, "1 Gbit/s", 100, Evidence{Streams: 1, Cost: Cost{BytesPerSecond: 125e6}, GoodputBytesPerSecond: 118e6, LinkName: "100gbe", LinkBytesPerSecond: 12.5e9}},
		{LimiterUnexplained, "2 times", 2, Evidence{GoodputBytesPerSecond: 1e9}},
		{LimiterUnexplained, "another path", 0.5, Evidence{GoodputBytesPerSecond: 2e9, LinkName: "1Gbit/s", LinkBytesPerSecond: 125e6}},
		{LimiterUnexplained, "nothing", 2, Evidence{Retransmits: 1, Segments: 1e6, ProducerCPU: 0.3, Streams: 1}},
	} {
		f := c.e.Limiter(c.ratio)
		if f.Limiter != c.want || !strings.Contains(f.Evidence, c.says) {
			t.Errorf("%s: %q, want %s with %q", f.Limiter, f.Evidence, c.want, c.says)
		}
	}
}
