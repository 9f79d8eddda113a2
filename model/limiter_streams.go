package model

import (
	"fmt"

	"kvbench/internal/units"
)

// StreamRate is the joint rate of a number of streams, in bytes a second: the median of
// several batches, and the fastest of them.
type StreamRate struct {
	Streams                          int
	BytesPerSecond, FastestPerSecond float64
}

// stream tests whether more streams carried more in the trial.
func (e Evidence) stream() (f Finding) {
	own, best := e.streamRates()
	if !helps(own, best) {
		return f
	}
	whose := fmt.Sprintf("%d streams are at their", own.Streams)
	f.Limiter = LimiterStreams
	if own.Streams == 1 {
		f.Limiter, whose = LimiterStream, "one stream is at its"
	}
	f.Evidence = fmt.Sprintf("%s ceiling: %s, and %s on the same path; use --streams %d", whose, own, best, best.Streams)
	if text, busy := e.processors(); busy {
		f.Evidence += "; " + text
	}
	return f
}

// streamRates returns the rate of the run's own number of streams and the best rate of
// any other number; both are zero if only one number was tried.
func (e Evidence) streamRates() (own, best StreamRate) {
	if len(e.StreamRates) < 2 {
		return own, best
	}
	own, best = e.StreamRates[0], e.StreamRates[1]
	for _, r := range e.StreamRates[2:] {
		if r.BytesPerSecond > best.BytesPerSecond {
			best = r
		}
	}
	return own, best
}

// helps reports whether more streams carried materially more: no batch of the run's own
// number came near.
func helps(own, more StreamRate) bool {
	return own.BytesPerSecond > 0 && more.BytesPerSecond >= moreStreams*own.BytesPerSecond && more.BytesPerSecond > own.FastestPerSecond
}

// noMoreStreams describes the evidence that the number of streams is not the limiter.
func (e Evidence) noMoreStreams() string {
	own, best := e.streamRates()
	switch {
	case own.BytesPerSecond > 0 && best.BytesPerSecond >= moreStreams*own.BytesPerSecond:
		return fmt.Sprintf("; more streams do not clearly help: %s, but up to %s in a batch, %s", own, units.BitRate(own.FastestPerSecond), best)
	case own.BytesPerSecond > 0:
		return fmt.Sprintf("; more streams do not help: %s, %s", own, best)
	case e.LinkBytesPerSecond > 0:
		return "; whether more streams carry more was not tried"
	}
	return ""
}

// String formats the rate for people.
func (r StreamRate) String() string {
	if r.Streams == 1 {
		return "1 stream carries " + units.BitRate(r.BytesPerSecond)
	}
	return fmt.Sprintf("%d streams carry %s", r.Streams, units.BitRate(r.BytesPerSecond))
}
