package model

import (
	"math"
	"testing"
)

// opt66b512 is the KV cache of OPT-66B at 512 tokens in fp16: 1.125 GiB.
const opt66b512 = 1_207_959_552

// DistServe's load on 100GbE, M/D/1. Close to saturation the response magnifies
// the factor: 2.093 s is of a framing rounded to 0.990, 2.090 of 8948/9038.
func TestDistServe(t *testing.T) {
	link := mustLink(t, "100gbe")
	for _, c := range []struct {
		mtu               int
		framing           Framing
		utilization, mean float64
	}{
		{0, Framing{Mode: FramingOff}, 0.966, 1.485},
		{9000, Framing{}, 0.976, 2.093},
		{9000, Framing{Mode: FramingFixed, Factor: 0.990}, 0.9761, 2.093},
	} {
		s := SpecCost(link, c.mtu, c.framing, 0, 0).Seconds(1, 1, opt66b512)
		q := Load{ArrivalsPerSecond: 10, ServiceSeconds: s}.Queue()
		near(t, "utilization", q.Utilization, c.utilization, 6e-4)
		near(t, "mean response", q.ResponseFCFS, c.mean, 2e-3)
		if !q.Stable {
			t.Error("called unstable")
		}
	}
	s := SpecCost(link, 1500, Framing{}, 0, 0).Seconds(1, 1, opt66b512)
	q := Load{ArrivalsPerSecond: 10, ServiceSeconds: s}.Queue()
	near(t, "utilization at MTU 1500", q.Utilization, 1.026, 6e-4)
	if q.Stable || !math.IsInf(q.ResponseFCFS, 1) || !math.IsInf(q.WaitPS, 1) {
		t.Errorf("MTU 1500 is unstable, not %+v", q)
	}
	near(t, "offered", 8*OfferedBytesPerSecond(10, opt66b512), 96.6e9, 1e-3)
}

func TestQueueIdentities(t *testing.T) {
	// Exponential service, E[S²] = 2E[S]²: M/M/1, where FCFS and PS wait alike.
	q := Load{ArrivalsPerSecond: 7, ServiceSeconds: 0.1, ServiceSquared: 2 * 0.01}.Queue()
	near(t, "M/M/1", q.WaitFCFS, 0.7/(10-7), 1e-12)
	near(t, "M/M/1 PS", q.WaitPS, q.WaitFCFS, 1e-12)
	// Constant service waits half of that.
	near(t, "M/D/1", Load{ArrivalsPerSecond: 7, ServiceSeconds: 0.1}.Queue().WaitFCFS, 0.7/(10-7)/2, 1e-12)
	// Half the requests 1 s, half 3 s: E[S] 2, E[S²] 5.
	m := Load{ArrivalsPerSecond: 0.25, ServiceSeconds: 2, ServiceSquared: 5}
	near(t, "M/G/1", m.Queue().WaitFCFS, 0.25*5/(2*0.5), 1e-12)
	for _, l := range []Load{{}, {ArrivalsPerSecond: 1}, {ServiceSeconds: 1}} {
		if q := l.Queue(); q.WaitFCFS != 0 || q.WaitPS != 0 || !q.Stable {
			t.Errorf("no load waits: %+v", q)
		}
	}
}

// LLaMA-2-70B at 10,000 tokens/s of prefill: 327,680 B each, 26.2 Gbit/s.
func TestReplicaBandwidth(t *testing.T) {
	near(t, "replica", 8*ReplicaBytesPerSecond(327680, 10e3), 26.2144e9, 1e-12)
}
