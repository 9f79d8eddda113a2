package bench

import (
	"strings"
	"testing"
	"time"
)

// unhindered is a request that had no prefill to wait for.
func unhindered(start, end time.Duration) moved {
	s := span{start, end}
	return moved{span: s, first: start, prefill: start, onPath: []span{s}}
}

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
		late     time.Duration // of each start
		says     string
	}{
		{"far apart", Poisson, 40 * ms, 0, 1, 0, "below the band of theory; these arrivals and service times, one after another, give a mean response of 10 ms: it is how 10 arrivals fell, by chance"},
		// The i-th waits for i others: 10, 20, ..., 100 ms, on average 55; growth is 90/20.
		{"all at once", Poisson, 0, 0, 1, 0, "still growing: the run is too short for a steady state, or the service times drift; these arrivals and service times, one after another, give a mean response of 55 ms"},
		// With 8 ms between them: 10, 28, ..., 172 ms, on average 91.
		{"all at once with pauses", Poisson, 0, 8 * ms, 1, 0, "give a mean response of 55 ms: the rest is time between requests"},
		// 11 ms each, of which 1 ms, more than a twentieth, is waking up.
		{"woken late", Poisson, 40 * ms, 0, 1, ms, "give a mean response of 10 ms: the rest is time between requests, in which one is checked and the next made ready, and in which this host wakes up late: 1 ms on average"},
		{"evenly spaced", Uniform, 20 * ms, 0, 1, 0, "these are evenly spaced"},
		{"shared", Poisson, 40 * ms, 0, 2, 0, "2 requests at a time shared the path"},
	} {
		r := newRecord()
		var free time.Duration
		for i := range 10 {
			due := time.Duration(i) * c.apart
			start := max(due, free) + c.late
			r.Late.Record(c.late)
			free = start + 10*ms + c.pause
			r.request(due, unhindered(start, start+10*ms), 1)
		}
		records := []*Record{r}
		for range c.workers - 1 {
			records = append(records, newRecord())
		}
		o := &Outcome{Plan: Plan{Workers: c.workers}, Load: Load{Rate: 50, Arrivals: c.arrivals}}
		l := o.load(merge(records), 0)
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
			r.request(start, unhindered(start, start+20*ms), 1)
		}
		records = append(records, r)
	}
	o := &Outcome{Plan: Plan{Workers: 2}, Load: Load{Rate: 50, Arrivals: Poisson}}
	l := o.load(merge(records), 0)
	near(t, "utilization", l.Utilization, 0.5, 0.01)
	near(t, "first come first served", *l.ResponseFCFSSeconds, 0.015, 0.01)
	if !l.Stable {
		t.Error("called unstable")
	}
}

// TestUnderPrefills: requests of 200 ms of prefill and then 10 ms on the path each, 100 ms
// apart, on two or three workers. Each takes 10 ms of the path, and 210 of a worker: at 8/s the
// utilization is 0.08 and 1.68 of two workers are at work, at 10/s 0.1 and 2.1; the path
// itself is full only at 100/s.
func TestUnderPrefills(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, c := range []struct {
		workers     int
		rate        float64
		utilization float64
		stable      bool
		says        string
	}{
		{2, 8, 0.08, true, "not held against theory: 2 requests at a time"},
		{2, 10, 0.1, false, "faster than 2 workers are done with them, prefill included"},
		{3, 10, 0.1, true, "not held against theory: 3 requests at a time"},
		{30, 120, 1.2, false, "faster than the path carries them"},
	} {
		var records []*Record
		for w := range c.workers {
			r := newRecord()
			start := time.Duration(w) * 100 * ms
			end := start + 210*ms
			r.request(start, moved{span: span{start, end}, first: end, prefill: end - 10*ms, onPath: []span{{end - 10*ms, end}}}, 1)
			records = append(records, r)
		}
		o := &Outcome{Plan: Plan{Workers: c.workers}, Load: Load{Rate: c.rate, Arrivals: Poisson}}
		l := o.load(merge(records), 2*ms)
		near(t, "utilization", l.Utilization, c.utilization, 0.01)
		if l.Stable != c.stable || !strings.Contains(l.Note, c.says) || l.ResponseFCFSSeconds != nil || l.ResponsePSSeconds != nil {
			t.Errorf("%d workers at %v/s: %+v, want stable %v, no theory, and a note of %q", c.workers, c.rate, l, c.stable, c.says)
		}
	}
}
