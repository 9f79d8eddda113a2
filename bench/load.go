package bench

import (
	"fmt"
	"time"

	"kvbench/internal/units"
	"kvbench/model"
	"kvbench/results"
)

// load compares an open loop's response times with queueing theory. pace is the emulated
// prefill of one layer, 0 without.
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

// underPrefills fills in the load of concurrent requests that each wait for a prefill and
// share the path. Utilization counts the time with layers on the path. Stability also
// requires enough workers, since a request occupies its worker during its prefill too.
// Single-queue theory does not cover their responses.
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

// pathService returns the mean path time of a request, and the mean of its square, in
// seconds. Requests that share the path slow one another, so the path time of each is the
// time with any of them on the path divided by their number. The relative spread is taken
// from the service times.
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

// replayAgrees is the largest difference, as a share, between a replay and the measured
// mean response if arrivals and service times alone explain the mean.
const replayAgrees = 0.05

// offTheory explains why the mean response differs from theory. A replay of the measured
// arrivals and service times either yields the measured mean, or leaves a part that
// passed between requests.
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

// wokeLate reports how late workers woke for due requests, if that is a significant part
// of the mean response.
func wokeLate(l *results.Load, record *Record) string {
	late, _ := record.Late.Moments()
	if late < replayAgrees*l.ResponseMeanSeconds {
		return ""
	}
	return fmt.Sprintf(", and in which this host wakes up late: %s on average", units.Seconds(late))
}

// growth returns the mean response of the last third of the requests, in order of due
// time, divided by the mean of the first third. It is 0 for fewer than nine.
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

// replay returns the mean response if one server takes these requests, in order of due
// time, without pauses: Lindley's recurrence (Proc. Cambridge Phil. Soc. 48, 1952) over
// the measured arrivals and service times.
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
