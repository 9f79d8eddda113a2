package model

import (
	"fmt"

	"kvbench/internal/units"
)

// StreamRate is the rate of a number of streams together, bytes a second: the median of
// several batches, and the fastest of them.
type StreamRate struct {
	Streams                          int
	BytesPerSecond, FastestPerSecond float64
}

// stream finds that more streams carry more, by trial.
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

// streamRates returns the rate of the run's number of streams and the rate of the number
// that carried most. Both are zero if only one number was tried.
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

// helps reports whether more streams carried materially more: no batch of the run's number
// came near.
func helps(own, more StreamRate) bool {
	return own.BytesPerSecond > 0 && more.BytesPerSecond >= moreStreams*own.BytesPerSecond && more.BytesPerSecond > own.FastestPerSecond
}

// noMoreStreams describes the evidence that streams are not the reason.
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

// String is the number of streams and their rate, for people.
func (r StreamRate) String() string {
	if r.Streams == 1 {
		return "1 stream carries " + units.BitRate(r.BytesPerSecond)
	}
	return fmt.Sprintf("%d streams carry %s", r.Streams, units.BitRate(r.BytesPerSecond))
}
