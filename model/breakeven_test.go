package model

import (
	"math"
	"strings"
	"testing"
)

// llamaOn is LLaMA-2-70B at 4K tokens in fp16 on a link, 80 layers, 582.73e12 FLOPs
// of prefill on eight H100 at 40 %: 184.1 ms.
func llamaOn(t *testing.T, link string) Scenario {
	return Scenario{
		ContextTokens: 4096, Transfers: EqualTransfers(80, 80, 1342177280),
		Path:           SpecCost(mustLink(t, link), 0, Framing{Mode: FramingOff}, 0, 0),
		PrefillSeconds: 582.73e12 / (8 * 989e12 * 0.4),
	}
}

func TestOutcome(t *testing.T) {
	s := llamaOn(t, "100gbe")
	o := s.Outcome()
	near(t, "prefill", s.PrefillSeconds, 0.1841, 1e-3)
	near(t, "transfer", o.TransferSeconds, 0.1074, 1e-3)
	near(t, "exposed", o.ExposedSeconds, 0.1074, 1e-3)
	near(t, "transfer over prefill", o.TransferOverPrefill, 0.1074/0.1841, 1e-3)
	near(t, "share of TTFT", o.ExposedShare, 0.1074/(0.1074+0.1841), 1e-3)
	// κ·tokens/s: 327,680 B at 4096 tokens in 184.1 ms.
	near(t, "hides at", o.HidingBytesPerSecond, 327680*4096/0.1841, 1e-3)
	if o.Verdict != Depends || !strings.Contains(s.Explain(o), "107.4 ms") {
		t.Errorf("nothing known of interference: %s, %s", o.Verdict, s.Explain(o))
	}

	s.Overlap = true
	near(t, "one layer exposed", s.Outcome().ExposedSeconds, 0.1074/80, 1e-3)

	s.SavedSeconds, s.SavedKnown = 0.05, true
	o = s.Outcome()
	near(t, "net gain", o.NetGainSeconds, 0.05-0.1074/80, 1e-3)
	if o.Verdict != Pays {
		t.Errorf("%s: %s", o.Verdict, s.Explain(o))
	}
	s.Overlap = false
	if o = s.Outcome(); o.Verdict != Costs {
		t.Errorf("%s: %s", o.Verdict, s.Explain(o))
	}
}

func TestOutcomeUnderLoad(t *testing.T) {
	s := llamaOn(t, "100gbe")
	s.ArrivalsPerSecond = 5
	o := s.Outcome()
	rho := 5 * 0.107374
	near(t, "with M/D/1 wait", o.ExposedSeconds, 0.107374+rho*0.107374/(2*(1-rho)), 1e-4)
	s.ArrivalsPerSecond = 10
	o = s.Outcome()
	if o.Verdict != Unstable || !strings.Contains(s.Explain(o), "unstable") || o.ExposedShare != 1 || !math.IsInf(o.NetGainSeconds, -1) {
		t.Errorf("%+v", o)
	}
	if o := (Scenario{}).Outcome(); o.ExposedShare != 0 || o.TransferOverPrefill != 0 {
		t.Errorf("nothing to ship: %+v", o)
	}
}

func TestHidingBandwidthWithOverheads(t *testing.T) {
	s := llamaOn(t, "100gbe")
	s.Path.BetaSeconds, s.Path.GammaSeconds = 1e-3, 1e-3 // 160 ms of 184
	near(t, "less room", s.HidingBandwidth(), 1342177280/(s.PrefillSeconds-0.16), 1e-9)
	s.Path.GammaSeconds = 2e-3
	if b := s.HidingBandwidth(); !math.IsInf(b, 1) {
		t.Errorf("overheads alone exceed prefill, yet %g B/s hides them", b)
	}
	// Posting of 160 ms that overlaps the wire leaves it all of prefill; half of the
	// overlap leaves what is not posting, twice over, or prefill less half of posting.
	for _, c := range []struct{ overlap, gamma, wire float64 }{
		{1, 1e-3, s.PrefillSeconds}, {0.5, 1e-3, (s.PrefillSeconds - 0.16) / 0.5}, {0.5, 0, s.PrefillSeconds - 0.04},
	} {
		s.Path.Overlap, s.Path.GammaSeconds = c.overlap, c.gamma
		near(t, "overlapping", s.HidingBandwidth(), 1342177280/c.wire, 1e-9)
		s2 := s
		s2.Path.BytesPerSecond = s.HidingBandwidth()
		near(t, "exposed there", s2.Path.ExposedSeconds(s.Transfers, s.PrefillSeconds*(1+1e-9)), s2.Path.ExposedSeconds(s.Transfers, 1e3), 1e-6)
	}
}

func TestBreakEvenContext(t *testing.T) {
	for _, c := range []struct {
		low, high, first int64
		ok               bool
	}{{1, 1 << 20, 777, true}, {1, 1 << 20, 1, true}, {1, 100, 777, false}, {800, 1000, 777, true}, {5, 5, 5, true}, {9, 5, 1, false}, {1, 1 << 40, 1<<40 - 1, true}} {
		got, ok := BreakEvenContext(c.low, c.high, func(n int64) bool { return n >= c.first })
		if ok != c.ok || (ok && got != max(c.low, c.first)) {
			t.Errorf("%+v: %d, %v", c, got, ok)
		}
	}
}

// Without overlap a quadratic prefill outgrows a linear transfer. By hand: exposed
// under 30 % of TTFT where B·prefill(n)·3/7 ≥ κ·n, so at
// n = (κ·G·7/(3·B) - 2P)/(2·L·d): G = 8·989e12·0.4, κ 327,680 B, B 12.5e9.
func TestBreakEvenContextByHand(t *testing.T) {
	p := llama70B
	p.GPUs, p.PeakFLOPs, p.MFU = 8, 989e12, 0.4
	want := (327680*8*989e12*0.4*7/3/12.5e9 - 2*68.45e9) / (2 * 80 * 8192)
	path := SpecCost(mustLink(t, "100gbe"), 0, Framing{Mode: FramingOff}, 0, 0)
	got, ok := BreakEvenContext(128, 1<<20, func(n int64) bool {
		s := Scenario{Transfers: EqualTransfers(80, 80, 327680*n), Path: path, PrefillSeconds: p.Seconds(n, 0)}
		return s.Outcome().ExposedShare <= 0.3
	})
	if !ok {
		t.Fatal("never")
	}
	near(t, "break-even context", float64(got), want, 1e-4)
}

func TestSensitivity(t *testing.T) {
	s := llamaOn(t, "100gbe")
	if s.Sensitivity() != nil {
		t.Error("a verdict that is not known cannot flip")
	}
	s.SavedSeconds, s.SavedKnown = 0.15, true // against 107.4 ms exposed: pays
	flips := s.Sensitivity()
	got := map[string]Flip{}
	for _, f := range flips {
		got[f.Input] = f
		if f.String() == "" {
			t.Error("no words")
		}
	}
	near(t, "bandwidth", got["bandwidth"].At, 1342177280/0.15, 1e-6)
	near(t, "saved", got["saved by disaggregation"].At, 0.107374, 1e-4)
	near(t, "factor", got["bandwidth"].Factor, 0.107374/0.15, 1e-4)
	if !got["prefill"].Never {
		t.Errorf("without overlap prefill does not matter: %v", got["prefill"])
	}
	if !flips[len(flips)-1].Never || flips[0].Never {
		t.Errorf("order: %v", flips)
	}
	s.ArrivalsPerSecond = 1
	// M/D/1: with service S and response R of 150 ms, λ = 2(R-S)/(S(2R-S)).
	for _, f := range s.Sensitivity() {
		if f.Input == "arrivals" {
			near(t, "arrivals", f.At, 2*(0.15-0.107374)/(0.107374*(0.3-0.107374)), 1e-3)
		}
	}
	// An overlapped transfer that prefill hides flips when prefill gets fast.
	s = llamaOn(t, "100gbe")
	s.Overlap, s.SavedSeconds, s.SavedKnown = true, 0.01, true
	for _, f := range s.Sensitivity() {
		if f.Input == "prefill" && (f.Never || f.At >= s.PrefillSeconds) {
			t.Errorf("prefill: %v", f)
		}
	}
}

// TestSensitivityOfAShare: what is saved as a share of prefill moves with it. By
// hand: T = S/B, net = 0.2·p - (T - 79/80·p) is zero at p = T/(0.2 + 79/80).
func TestSensitivityOfAShare(t *testing.T) {
	s := Scenario{
		Transfers: EqualTransfers(80, 80, 8192*327680), Path: Cost{BytesPerSecond: 12.5e9 * 1448 / 1538},
		PrefillSeconds: 0.3822, SavedShare: 0.2, SavedKnown: true, Overlap: true,
	}
	transfer := float64(s.Transfers.Bytes()) / s.Path.BytesPerSecond
	want := transfer / (0.2 + 79.0/80)
	for _, f := range s.Sensitivity() {
		if f.Input == "prefill" {
			if f.Never || f.At < 0.999*want || f.At > 1.001*want {
				t.Errorf("prefill flips at %.5g s, want %.5g", f.At, want)
			}
			return
		}
	}
	t.Error("prefill is not among the inputs")
}

// TestSensitivityOfWhatIsSaved: a share has no bound at the whole, since it counts from
// prefill alone on its node, and what disaggregation removes may be longer than that. A
// share and as much time say the same.
func TestSensitivityOfWhatIsSaved(t *testing.T) {
	// 107.374 ms are exposed. Of a prefill of 184.1 ms that is 0.58324, of 100 ms 1.07374
	// and of 50 ms 2.14748, in a verdict that does not pay and in one that does.
	for _, c := range []struct{ prefill, share, at float64 }{{0.1841, 0.1, 0.58324}, {0.1, 0.5, 1.07374}, {0.05, 1, 2.14748}, {0.05, 3, 2.14748}} {
		s := llamaOn(t, "100gbe")
		s.PrefillSeconds, s.SavedShare, s.SavedKnown = c.prefill, c.share, true
		f := flipOf(t, s, "saved by disaggregation")
		if f.Never || math.Abs(f.At-c.at) > 1e-4 {
			t.Errorf("%g of a prefill of %g s: %+v, want %g of it", c.share, c.prefill, f, c.at)
		}
		s.SavedShare, s.SavedSeconds = 0, c.share*c.prefill
		if as := flipOf(t, s, "saved by disaggregation"); as.Never || math.Abs(as.Factor/f.Factor-1) > 1e-6 {
			t.Errorf("%g of a prefill of %g s: %+v as a share, %+v as time", c.share, c.prefill, f, as)
		}
	}
}

// TestSensitivityStaysPossible: a prefill does not go below the time that its
// accelerators take at their peak; everything else may.
func TestSensitivityStaysPossible(t *testing.T) {
	// Layers hide behind 184.1 ms of prefill, of which eight H100 at their peak need 73.64:
	// 10 ms saved are exceeded at x + 79·(x-c) = 10 ms, c = 1.2324 ms, P = 98.59 ms; of
	// 50 ms at P = 58.1 ms, which they cannot reach.
	for _, c := range []struct{ saved, at float64 }{{0.01, 0.09859}, {0.05, 0}} {
		s := llamaOn(t, "100gbe")
		s.Overlap, s.SavedSeconds, s.SavedKnown = true, c.saved, true
		s.LeastPrefillSeconds = 582.73e12 / (8 * 989e12)
		f := flipOf(t, s, "prefill")
		if f.Never != (c.at == 0) || f.Barred != f.Never || !f.Never && math.Abs(f.At-c.at) > 1e-4 {
			t.Errorf("%g s saved: %+v, want %g s", c.saved, f, c.at)
		}
		if f.Barred && !strings.Contains(f.String(), "no value that it can have") {
			t.Errorf("%g s saved: %s", c.saved, f)
		}
		s.LeastPrefillSeconds = 0 // a measured prefill has no such bound
		if f := flipOf(t, s, "prefill"); f.Never {
			t.Errorf("%g s saved, and no bound: %+v", c.saved, f)
		}
	}
	// Within a factor of a thousand either way, and not beyond: 1 ms and 0.1 ms saved.
	for saved, never := range map[float64]bool{1e-3: false, 1e-4: true} {
		s := llamaOn(t, "100gbe")
		s.SavedSeconds, s.SavedKnown = saved, true
		if f := flipOf(t, s, "bandwidth"); f.Never != never || f.Barred {
			t.Errorf("%g s saved: %+v", saved, f)
		}
	}
}

// flipOf is the flip of one input.
func flipOf(t *testing.T, s Scenario, input string) Flip {
	t.Helper()
	for _, f := range s.Sensitivity() {
		if f.Input == input {
			return f
		}
	}
	t.Fatalf("%s is not among the inputs", input)
	return Flip{}
}
