package bench

import (
	"fmt"
	"time"

	"kvbench/internal/units"
	"kvbench/model"
	"kvbench/results"
)

// load holds an open loop's response times against queueing theory. pace is that of the
// emulated prefill, 0 without.
func (o *Outcome) load(record *Record, pace time.Duration) *results.Load {
	response, _ := record.Response.Moments()
	l := &results.Load{
		Arrivals: string(o.Load.Arrivals), ArrivalsPerSecond: o.Load.Rate, ResponseMeanSeconds: response,
		ResponseReplayedSeconds: record.Replayed.Seconds(), Growth: record.Growth,
	}
	if pace > 0 && o.Plan.Workers > 1 {
		o.underPrefills(l, record)
		return l
	}
	mean, square := o.pathService(record)
	q := model.Load{ArrivalsPerSecond: o.Load.Rate, ServiceSeconds: mean, ServiceSquared: square}.Queue()
	l.Utilization, l.Stable = q.Utilization, q.Stable
	l.ResponseFCFSSeconds, l.ResponsePSSeconds = bound(q.ResponseFCFS), bound(q.ResponsePS)
	low, high := min(q.ResponseFCFS, q.ResponsePS), max(q.ResponseFCFS, q.ResponsePS)
	switch {
	case !q.Stable:
		l.Note = "unstable: requests arrive faster than they are served, and responses grow for as long as that lasts"
	case response < low:
		l.Note = "below the band of theory" + o.offTheory(l, record)
	case response > high:
		l.Note = "above the band of theory" + o.offTheory(l, record)
	default:
		l.Note = "within the band of theory, from first come first served to fair sharing"
	}
	return l
}

// underPrefills is the load of requests that wait for a prefill each and share the path
// between: the path's is of the time with layers on it, and every request keeps one of
// the workers for its prefill too. There is no theory of one queue for their responses.
func (o *Outcome) underPrefills(l *results.Load, record *Record) {
	service, _ := record.Service.Moments()
	l.Utilization = o.Load.Rate * record.OnPath.Seconds() / float64(record.Requests)
	l.Stable = l.Utilization < 1 && o.Load.Rate*service < float64(o.Plan.Workers)
	switch {
	case l.Stable:
		l.Note = fmt.Sprintf("not held against theory: %d requests at a time each have a prefill of their own, which is in their response and keeps no other waiting", o.Plan.Workers)
	case l.Utilization < 1:
		l.Note = fmt.Sprintf("unstable: requests arrive faster than %d workers are done with them, prefill included, and responses grow for as long as that lasts; a higher --concurrency serves more", o.Plan.Workers)
	default:
		l.Note = "unstable: requests arrive faster than the path carries them, and responses grow for as long as that lasts"
	}
}

// pathService returns the mean time that a request takes of the path, and the mean of
// its square. Of requests that shared the path each was slowed by the others: what it
// took of the path is the time with any on it, divided among all, and the spread
// is taken to be that of the service times.
func (o *Outcome) pathService(record *Record) (mean, square float64) {
	mean, square = record.Service.Moments()
	if o.Plan.Workers < 2 || record.Requests == 0 {
		return mean, square
	}
	own := record.OnPath.Seconds() / float64(record.Requests)
	if own >= mean {
		return mean, square
	}
	return own, square * (own / mean) * (own / mean)
}

// replayAgrees is how near a replay comes to the measured mean response where
// nothing but arrivals and service times made it, as a share.
const replayAgrees = 0.05

// offTheory says why the mean response is not that of theory, as far as the
// requests themselves tell: their very arrivals and service times, replayed, either
// give the mean that was measured or leave a part of it that went between requests.
func (o *Outcome) offTheory(l *results.Load, record *Record) string {
	if o.Load.Arrivals == Uniform {
		return ", which is for random arrivals: these are evenly spaced"
	}
	replayed, grows := l.ResponseReplayedSeconds, ""
	if l.Growth > 1.5 {
		grows = ", and still growing: the run is too short for a steady state, or the service times drift"
	}
	switch {
	case replayed == 0:
		return fmt.Sprintf("%s; %d requests at a time shared the path, and of %d arrivals some came together or apart by chance", grows, o.Plan.Workers, record.Requests)
	case l.ResponseMeanSeconds > (1+replayAgrees)*replayed:
		return fmt.Sprintf("%s; these arrivals and service times alone give a mean response of %s: the rest is time between requests, in which one is checked and the next made ready%s", grows, units.Seconds(replayed), wokeLate(l, record))
	}
	return fmt.Sprintf("%s; these arrivals and service times, one after another, give a mean response of %s: it is how %d arrivals fell, by chance", grows, units.Seconds(replayed), record.Requests)
}

// wokeLate says how late workers woke up for requests that were due, where that is a part
// of the mean response that matters.
func wokeLate(l *results.Load, record *Record) string {
	late, _ := record.Late.Moments()
	if late < replayAgrees*l.ResponseMeanSeconds {
		return ""
	}
	return fmt.Sprintf(", and in which this host wakes up late: %s on average", units.Seconds(late))
}

// growth is the mean response of the last third over that of the first, of
// responses in order of when they were due; 0 of fewer than nine.
func growth(responses []response) float64 {
	third := len(responses) / 3
	if third < 3 {
		return 0
	}
	var first, last time.Duration
	for i := range third {
		first += responses[i].took
		last += responses[len(responses)-1-i].took
	}
	return float64(last) / float64(max(first, 1))
}

// replay is the mean response of requests, in order of when they were due, that
// one server takes one after another without a pause: Lindley's recurrence (Proc.
// Cambridge Phil. Soc. 48, 1952) over the arrivals and service times that were.
func replay(responses []response) time.Duration {
	if len(responses) == 0 {
		return 0
	}
	var total time.Duration
	free := responses[0].due
	for _, r := range responses {
		free = max(free, r.due) + r.service
		total += free - r.due
	}
	return total / time.Duration(len(responses))
}
