package results

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
)

// of returns a histogram of durations.
func of(durations ...time.Duration) *Histogram {
	h := NewHistogram()
	for _, d := range durations {
		h.Record(d)
	}
	return h
}

// upTo returns a histogram of 1 ms, 2 ms, ... n ms.
func upTo(n int) *Histogram {
	h := NewHistogram()
	for i := range n {
		h.Record(time.Duration(i+1) * time.Millisecond)
	}
	return h
}

func latency(t *testing.T, h *Histogram) Latency {
	t.Helper()
	l, err := h.Latency()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestQuantileNeedsSamples: a quantile is there only where enough samples stand behind it.
func TestQuantileNeedsSamples(t *testing.T) {
	for _, c := range []struct {
		n                   int
		p50, p90, p99, p999 bool
	}{
		{0, false, false, false, false},
		{1, true, false, false, false},
		{9, true, false, false, false},
		{10, true, true, false, false},
		{99, true, true, false, false},
		{100, true, true, true, false},
		{999, true, true, true, false},
		{1000, true, true, true, true},
	} {
		l := latency(t, upTo(c.n))
		for _, q := range []struct {
			name string
			got  *int64
			want bool
		}{{"p50", l.P50Ns, c.p50}, {"p90", l.P90Ns, c.p90}, {"p99", l.P99Ns, c.p99}, {"p99.9", l.P999Ns, c.p999}} {
			if (q.got != nil) != q.want {
				t.Errorf("%d samples: %s there: %v, want %v", c.n, q.name, q.got != nil, q.want)
			}
		}
		if l.Count != int64(c.n) {
			t.Errorf("%d samples: count %d", c.n, l.Count)
		}
	}
}

// TestQuantiles has values that are known by hand, to the three digits of the histogram.
func TestQuantiles(t *testing.T) {
	h := upTo(1000)
	for q, want := range map[float64]time.Duration{0: 1 * time.Millisecond, 0.5: 500 * time.Millisecond, 0.9: 900 * time.Millisecond, 0.99: 990 * time.Millisecond, 1: time.Second} {
		if got := h.Quantile(q); math.Abs(got.Seconds()/want.Seconds()-1) > 0.001 {
			t.Errorf("quantile %g is %v, want %v", q, got, want)
		}
	}
	if l := latency(t, h); math.Abs(l.MeanNs/500.5e6-1) > 0.001 {
		t.Errorf("mean %g ns, want 500.5e6", l.MeanNs)
	}
	if got := NewHistogram().Quantile(0.5); got != 0 {
		t.Errorf("quantile of nothing is %v", got)
	}
}

// TestNoQuantileAboveMaximum: 3,151,696 ns lies in a bucket of 2048 ns that ends at
// 3,151,871; the quantile of one bucket's values is the maximum, which is known exactly.
func TestNoQuantileAboveMaximum(t *testing.T) {
	h := of(3151680, 3151696)
	for _, q := range []float64{0.5, 0.99, 1} {
		if got := h.Quantile(q); got != 3151696 {
			t.Errorf("quantile %g is %d ns, want 3151696", q, got)
		}
	}
	if l := latency(t, h); *l.P50Ns != 3151696 || l.MaxNs != 3151696 || l.MeanNs > 3151696 {
		t.Errorf("p50 %d ns, mean %g ns, maximum %d ns", *l.P50Ns, l.MeanNs, l.MaxNs)
	}
}

func TestSmallest(t *testing.T) {
	for _, n := range []int{1, 2, 5, 10, 99, 1000} {
		h := upTo(n)
		for rank := 1; rank <= n; rank++ {
			if got := h.Smallest(int64(rank)); math.Abs(got.Seconds()*1000/float64(rank)-1) > 0.001 {
				t.Fatalf("number %d of %d is %v", rank, n, got)
			}
		}
	}
	if got := NewHistogram().Smallest(1); got != 0 {
		t.Errorf("the smallest of nothing is %v", got)
	}
}

// TestEdges: what lies outside the range counts at its edge, and the maximum is exact.
func TestEdges(t *testing.T) {
	for _, c := range []struct {
		name    string
		d       time.Duration
		at, max time.Duration
	}{
		{"zero", 0, 1, 0},
		{"negative", -time.Second, 1, 0},
		{"one", 1, 1, 1},
		{"between buckets", 123456789, 123456789, 123456789},
		{"an hour", time.Hour, time.Hour, time.Hour},
		{"more", 3 * time.Hour, time.Hour, 3 * time.Hour},
	} {
		h := of(c.d)
		if got := h.Quantile(0.5); math.Abs(float64(got-c.at)) > 0.001*float64(c.at) {
			t.Errorf("%s: counted at %v, want %v", c.name, got, c.at)
		}
		if l := latency(t, h); l.MaxNs != int64(c.max) || l.Count != 1 {
			t.Errorf("%s: max %d ns of %d, want %d of 1", c.name, l.MaxNs, l.Count, c.max)
		}
	}
}

func TestMerge(t *testing.T) {
	a, b := of(time.Millisecond, 2*time.Millisecond), of(7*time.Millisecond+1)
	a.Merge(b)
	a.Merge(NewHistogram())
	l := latency(t, a)
	if l.Count != 3 || l.MaxNs != int64(7*time.Millisecond+1) {
		t.Errorf("merged: %d with max %d", l.Count, l.MaxNs)
	}
	if got := a.Quantile(1); math.Abs(got.Seconds()-0.007) > 7e-6 {
		t.Errorf("largest of the merged is %v", got)
	}
	if b.Count() != 1 {
		t.Errorf("the merged one has %d left", b.Count())
	}
	a.Reset()
	if l := latency(t, a); l.Count != 0 || l.MaxNs != 0 || l.P50Ns != nil {
		t.Errorf("after Reset: %+v", l)
	}
}

// TestHistogramTravels: what crosses the control channel, or a file, is what was there.
func TestHistogramTravels(t *testing.T) {
	for name, h := range map[string]*Histogram{
		"empty": NewHistogram(), "one": of(42), "many": upTo(5000), "wide": of(1, time.Hour, 5*time.Microsecond, 2*time.Hour),
	} {
		b, err := json.Marshal(h)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var again Histogram
		if err := json.Unmarshal(b, &again); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if before, after := latency(t, h), latency(t, &again); asJSON(t, before) != asJSON(t, after) {
			t.Errorf("%s: %s before, %s after", name, asJSON(t, before), asJSON(t, after))
		}
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestHistogramRefuses(t *testing.T) {
	good := latency(t, upTo(10))
	for name, c := range map[string]struct {
		change func(*Latency)
		says   string
	}{
		"nothing":      {func(l *Latency) { l.HDR = "" }, "empty"},
		"no base64":    {func(l *Latency) { l.HDR = "***" }, "base64"},
		"cut":          {func(l *Latency) { l.HDR = l.HDR[:len(l.HDR)/2/4*4] }, ""},
		"other cookie": {func(l *Latency) { l.HDR = "AAAA" + l.HDR[4:] }, ""},
		"other count":  {func(l *Latency) { l.Count++ }, "counts 10 where the result says 11"},
		"less":         {func(l *Latency) { l.MaxNs = 9e6 }, "where the result says 9000000"},
		"more":         {func(l *Latency) { l.MaxNs = 11e6 }, "where the result says 11000000"},
		"no maximum":   {func(l *Latency) { l.MaxNs = 0 }, "where the result says 0"},
	} {
		l := good
		c.change(&l)
		if _, err := l.Histogram(); err == nil || !strings.Contains(err.Error(), "read histogram") || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: error %v, want one that says %q", name, err, c.says)
		}
	}
	var h Histogram
	for _, s := range []string{"{}", "null", "[]", `{"count":1}`, `{"hdr":5}`} {
		if err := json.Unmarshal([]byte(s), &h); err == nil && s != "null" {
			t.Errorf("%s was read as a histogram", s)
		}
	}
}

func TestRecordAllocatesNothing(t *testing.T) {
	h := NewHistogram()
	d := time.Duration(1)
	if n := testing.AllocsPerRun(1000, func() { h.Record(d); d = d*3/2 + 1 }); n != 0 {
		t.Errorf("Record allocates %g times", n)
	}
}

func BenchmarkHistogramRecord(b *testing.B) {
	h := NewHistogram()
	b.ReportAllocs()
	d := time.Duration(0)
	for b.Loop() {
		h.Record(d)
		d = (d + 7919) % time.Second
	}
}
