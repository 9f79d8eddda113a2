package model

import (
	"fmt"

	"kvbench/internal/units"
)

// Processor is the processor time of one end's process.
type Processor struct {
	Cores float64 // cores' worth, over the time with a request in flight
	CPUs  int     // of its host; 0 if unknown
}

// known reports whether the processor time was measured.
func (p Processor) known() bool { return p != Processor{} }

// memory checks the share of two busy ends' time that goes into copying. TCP on one host
// copies each byte twice, into the kernel and out of it; for shared memory it depends on
// the end that places the bytes. A core copies at CopyBytesPerSecond when it does nothing
// else.
func (e Evidence) memory() (f Finding) {
	used := e.Producer.Cores + e.Consumer.Cores
	if _, busy := e.processors(); busy && e.bothKnown() && e.copyCores() >= copyShare*used {
		f = Finding{LimiterMemory, fmt.Sprintf("both ends are on this host, and copying each byte twice at the %s of a core takes %.2f of the %.2f cores that they use",
			units.Rate(e.CopyBytesPerSecond), e.copyCores(), used)}
	}
	return f
}

// copyCores is the number of cores that copy all the time at the measured goodput; 0 if the
// path is not this host's memory.
func (e Evidence) copyCores() float64 {
	if !e.SameHost || e.CopyBytesPerSecond <= 0 {
		return 0
	}
	return float64(e.Copies) * e.GoodputBytesPerSecond / e.CopyBytesPerSecond
}

func (e Evidence) cpu() (f Finding) {
	text, busy := e.processors()
	if !busy {
		return f
	}
	if c := e.copyCores(); c > 0 && e.bothKnown() {
		text += fmt.Sprintf("; both are on this host, and %.2f of a core of that is copying each byte twice, the rest TCP and waking up", c)
	}
	return Finding{LimiterCPU, text + e.noMoreStreams()}
}

// bothKnown reports whether the processor time of both ends was measured, so that their
// total can be named.
func (e Evidence) bothKnown() bool { return e.Producer.known() && e.Consumer.known() }

// processors describes how busy the measured ends are. It reports busy if either end, or
// the host that both share, has no processor time to spare. A process can use a core for
// each of its lanes, up to the number in its host.
func (e Evidence) processors() (text string, busy bool) {
	lanes := max(e.Lanes, 1)
	switch {
	case e.bothKnown():
		text = fmt.Sprintf("the producer's process uses %.2f cores and the consumer's %.2f, for %d lane(s)", e.Producer.Cores, e.Consumer.Cores, lanes)
	case e.Producer.known():
		text = fmt.Sprintf("the producer's process uses %.2f cores, for %d lane(s)", e.Producer.Cores, lanes)
	case e.Consumer.known():
		text = fmt.Sprintf("the consumer's process uses %.2f cores, for %d lane(s)", e.Consumer.Cores, lanes)
	}
	for _, p := range []Processor{e.Producer, e.Consumer} {
		busy = busy || p.Cores >= busyCPU*float64(p.limit(lanes))
	}
	if e.SameHost && e.bothKnown() && e.Producer.CPUs > 0 {
		busy = busy || e.Producer.Cores+e.Consumer.Cores >= busyCPU*float64(min(2*lanes, e.Producer.CPUs))
	}
	return text, busy
}

// onOneHost describes how busy the ends are if no wire joins them.
func (e Evidence) onOneHost() string {
	if !e.SameHost {
		return ""
	}
	text := "; both ends are on this host, and no wire is between them"
	if used, _ := e.processors(); used != "" {
		text += ": " + used
	}
	return text
}

func (p Processor) limit(lanes int) int {
	if p.CPUs > 0 {
		return min(lanes, p.CPUs)
	}
	return lanes
}
