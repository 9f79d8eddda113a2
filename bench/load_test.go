package bench

import (
	"strings"
	"testing"
	"time"
)

// TestOffTheory: a mean response outside the band of theory has a reason that its
// own arrivals and service times bear out. Ten requests of 10 ms each, at a rate of
// 50/s, are ρ = 0.5: M/D/1 gives 10·(1 + 0.5/(2·0.5)) = 15 ms, fair sharing 20 ms.
func TestOffTheory(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name     string
		arrivals Arrivals
		apart    time.Duration // of the due times
		pause    time.Duration // between a delivery and the next start
		workers  int
		says     string
	}{
		{"far apart", Poisson, 40 * ms, 0, 1, "below the band of theory; these arrivals and service times, one after another, give a mean response of 10 ms: it is how 10 arrivals fell, by chance"},
		// The i-th waits for i others: 10, 20, ..., 100 ms, on average 55; growth is 90/20.
		{"all at once", Poisson, 0, 0, 1, "still growing: the run is too short for a steady state, or the service times drift; these arrivals and service times, one after another, give a mean response of 55 ms"},
		// With 8 ms between them: 10, 28, ..., 172 ms, on average 91.
		{"all at once with pauses", Poisson, 0, 8 * ms, 1, "give a mean response of 55 ms: the rest is time between requests"},
		{"evenly spaced", Uniform, 20 * ms, 0, 1, "these are evenly spaced"},
		{"shared", Poisson, 40 * ms, 0, 2, "2 requests at a time shared the path"},
	} {
		r := newRecord()
		var free time.Duration
		for i := range 10 {
			due := time.Duration(i) * c.apart
			start := max(due, free)
			free = start + 10*ms + c.pause
			r.request(due, moved{span: span{start, start + 10*ms}, first: start, prefill: start}, 1)
		}
		records := []*Record{r}
		for range c.workers - 1 {
			records = append(records, newRecord())
		}
		o := &Outcome{Plan: Plan{Workers: c.workers}, Load: Load{Rate: 50, Arrivals: c.arrivals}}
		l := o.load(merge(records))
		near(t, "utilization", l.Utilization, 0.5, 0.01)
		near(t, "first come first served", *l.ResponseFCFSSeconds, 0.015, 0.01)
		if !strings.Contains(l.Note, c.says) {
			t.Errorf("%s: %q, want %q", c.name, l.Note, c.says)
		}
	}
}

// TestSharedPath: four requests of 20 ms each, two at a time, occupy the path for
// 40 ms: 10 ms each. At 50/s that is a utilization of 0.5, not 1.
func TestSharedPath(t *testing.T) {
	const ms = time.Millisecond
	var records []*Record
	for range 2 {
		r := newRecord()
		for _, start := range []time.Duration{0, 20 * ms} {
			r.request(start, moved{span: span{start, start + 20*ms}, first: start, prefill: start}, 1)
		}
		records = append(records, r)
	}
	o := &Outcome{Plan: Plan{Workers: 2}, Load: Load{Rate: 50, Arrivals: Poisson}}
	l := o.load(merge(records))
	near(t, "utilization", l.Utilization, 0.5, 0.01)
	near(t, "first come first served", *l.ResponseFCFSSeconds, 0.015, 0.01)
	if !l.Stable {
		t.Error("called unstable")
	}
}
