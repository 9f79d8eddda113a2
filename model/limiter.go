package model

import (
	"fmt"

	"kvbench/internal/units"
)

// Evidence is what both ends saw while a cell was measured. A zero field means
// that nobody looked; it then supports nothing.
type Evidence struct {
	GoodputBytesPerSecond float64 // measured, of the cell
	LinkName              string  // the link that the spec prediction assumed
	LinkBytesPerSecond    float64 // its line rate
	DeviceName            string  // the interface that carried the data
	DeviceBytesPerSecond  float64 // its real line rate, as the kernel reports it

	SameHost             bool    // loopback or shared memory: copies, not a wire
	CopyBytesPerSecond   float64 // memory copy of one core of this host
	Streams              int     // connections that carried the data
	StreamBytesPerSecond float64 // the most that one stream reached on this path, from calibration
	PathBytesPerSecond   float64 // the most that the path reached with any number of streams, from calibration

	ProducerCPU, ConsumerCPU float64 // busiest data thread, share of a core
	Retransmits, Segments    int64   // of the data connections
	ReceiveWindowLimited     float64 // share of the busy time that the peer's window stopped the sender
	Concurrency              int     // requests in flight at once
	ResponseSeconds          float64 // p50 from the intended time
	ServiceSeconds           float64 // p50 from the real start
	RegistrationSeconds      float64 // registration inside the timed path, a request

	Cost        Cost // fitted, for the descriptors' share
	Transfers   int  // of a request
	Descriptors int
	Bytes       int64
}

// Finding is the first limiter that the evidence supports.
type Finding struct {
	Limiter  string // a name to group by
	Evidence string // one sentence
}

// The limiters, as they stand in a verdict.
const (
	LimiterDevice        = "slower device"
	LimiterRegistration  = "registration"
	LimiterQueueing      = "queueing"
	LimiterDescriptors   = "descriptors"
	LimiterRetransmits   = "retransmits"
	LimiterReceiveWindow = "receive window"
	LimiterCPU           = "cpu"
	LimiterMemory        = "memory bandwidth"
	LimiterStream        = "one stream"
	LimiterPath          = "slower path"
	LimiterUnexplained   = "unexplained"
)

// From which value an observation is taken as the reason.
const (
	slowerDevice      = 0.9   // of the named link's rate
	busyCPU           = 0.9   // of a core
	manyRetransmits   = 0.001 // of segments: TCP's rate falls with 1/sqrt(loss)
	windowShare       = 0.2   // of the busy time
	queueingShare     = 1.25  // concurrent service, or response over service
	registrationShare = 0.1   // of a request's service time
	atCeiling         = 0.85  // of a ceiling that was measured
	copyShare         = 0.25  // of one core's copy rate: loopback copies twice and each copy reads and writes
)

// Limiter names the first limiter that the evidence supports for a measurement
// whose ratio to the prediction is ratio, in the order of how conclusive each is:
// facts of the set-up, then time that is accounted for, then counters, then
// ceilings. A measurement faster than predicted is never a limiter's doing.
func (e Evidence) Limiter(ratio float64) Finding {
	if ratio < 1 {
		return e.faster(ratio)
	}
	for _, look := range []func() Finding{e.device, e.registration, e.descriptors, e.queueing,
		e.retransmits, e.window, e.cpu, e.memory, e.stream, e.path} {
		if f := look(); f.Limiter != "" {
			return f
		}
	}
	return Finding{LimiterUnexplained, fmt.Sprintf("measured %.3g times the prediction at %s, and nothing that was observed accounts for it", ratio, units.Rate(e.GoodputBytesPerSecond))}
}

func (e Evidence) faster(ratio float64) Finding {
	text := fmt.Sprintf("measured %.3g times the prediction: faster than predicted", ratio)
	if e.GoodputBytesPerSecond > e.LinkBytesPerSecond && e.LinkBytesPerSecond > 0 {
		text += fmt.Sprintf("; %s exceeds the line rate of %s (%s), so the data took another path or the link is named too slow",
			units.Rate(e.GoodputBytesPerSecond), e.LinkName, units.BitRate(e.LinkBytesPerSecond))
	}
	return Finding{LimiterUnexplained, text}
}

func (e Evidence) device() (f Finding) {
	if e.DeviceBytesPerSecond > 0 && e.DeviceBytesPerSecond < slowerDevice*e.LinkBytesPerSecond {
		f = Finding{LimiterDevice, fmt.Sprintf("%s runs at %s, the link %s is %s", e.DeviceName, units.BitRate(e.DeviceBytesPerSecond), e.LinkName, units.BitRate(e.LinkBytesPerSecond))}
		if e.GoodputBytesPerSecond > 0 && e.GoodputBytesPerSecond < 0.5*e.DeviceBytesPerSecond {
			f.Evidence += fmt.Sprintf("; goodput of %s is below even that: something shapes the path", units.BitRate(e.GoodputBytesPerSecond))
		}
	}
	return f
}

func (e Evidence) registration() (f Finding) {
	if e.ServiceSeconds > 0 && e.RegistrationSeconds > registrationShare*e.ServiceSeconds {
		f = Finding{LimiterRegistration, fmt.Sprintf("memory registration took %s of %s in the timed path", units.Seconds(e.RegistrationSeconds), units.Seconds(e.ServiceSeconds))}
	}
	return f
}

func (e Evidence) descriptors() (f Finding) {
	posted := float64(e.Descriptors) * e.Cost.GammaSeconds
	if wire := e.Cost.WireSeconds(e.Bytes); posted > 0 && posted > wire {
		f = Finding{LimiterDescriptors, fmt.Sprintf("%d descriptors cost %s, their bytes %s", e.Descriptors, units.Seconds(posted), units.Seconds(wire))}
	}
	return f
}

func (e Evidence) queueing() (f Finding) {
	switch {
	case e.Concurrency > 1:
		alone := e.Cost.Seconds(e.Transfers, e.Descriptors, e.Bytes)
		if alone > 0 && e.ServiceSeconds > queueingShare*alone && e.ServiceSeconds < 1.1*float64(e.Concurrency)*alone {
			f = Finding{LimiterQueueing, fmt.Sprintf("%d requests in flight share the link: %s each, %s for one alone", e.Concurrency, units.Seconds(e.ServiceSeconds), units.Seconds(alone))}
		}
	case e.ServiceSeconds > 0 && e.ResponseSeconds > queueingShare*e.ServiceSeconds:
		f = Finding{LimiterQueueing, fmt.Sprintf("a request takes %s and is done %s after it was due: it waits for those before it", units.Seconds(e.ServiceSeconds), units.Seconds(e.ResponseSeconds))}
	}
	return f
}

func (e Evidence) retransmits() (f Finding) {
	if e.Segments > 0 && float64(e.Retransmits) > manyRetransmits*float64(e.Segments) {
		f = Finding{LimiterRetransmits, fmt.Sprintf("%d of %d segments were sent again (%.2g %%)", e.Retransmits, e.Segments, 100*float64(e.Retransmits)/float64(e.Segments))}
	}
	return f
}

func (e Evidence) window() (f Finding) {
	if e.ReceiveWindowLimited > windowShare {
		f = Finding{LimiterReceiveWindow, fmt.Sprintf("the receiver's window stopped the sender for %.0f %% of its busy time", 100*e.ReceiveWindowLimited)}
	}
	return f
}

func (e Evidence) cpu() (f Finding) {
	side, share := "producer", e.ProducerCPU
	if e.ConsumerCPU > share {
		side, share = "consumer", e.ConsumerCPU
	}
	if share >= busyCPU {
		f = Finding{LimiterCPU, fmt.Sprintf("the %s's data thread used %.0f %% of a core", side, 100*share)}
	}
	return f
}

func (e Evidence) memory() (f Finding) {
	if e.SameHost && e.CopyBytesPerSecond > 0 && e.GoodputBytesPerSecond > copyShare*e.CopyBytesPerSecond {
		f = Finding{LimiterMemory, fmt.Sprintf("both ends are on this host: %s is what its copies allow (one core copies %s)", units.Rate(e.GoodputBytesPerSecond), units.Rate(e.CopyBytesPerSecond))}
	}
	return f
}

func (e Evidence) stream() (f Finding) {
	if e.Streams == 1 && e.StreamBytesPerSecond > 0 && e.GoodputBytesPerSecond >= atCeiling*e.StreamBytesPerSecond &&
		e.StreamBytesPerSecond < atCeiling*max(e.PathBytesPerSecond, e.DeviceBytesPerSecond) {
		f = Finding{LimiterStream, fmt.Sprintf("one stream reaches %s on this path, which has %s; try more streams",
			units.Rate(e.StreamBytesPerSecond), units.Rate(max(e.PathBytesPerSecond, e.DeviceBytesPerSecond)))}
	}
	return f
}

// path is what is left when the bytes flow steadily at less than the link's rate.
func (e Evidence) path() (f Finding) {
	ceiling := max(e.Cost.BytesPerSecond, e.PathBytesPerSecond)
	if ceiling > 0 && e.LinkBytesPerSecond > 0 && ceiling < slowerDevice*e.LinkBytesPerSecond && e.GoodputBytesPerSecond >= atCeiling*ceiling {
		f = Finding{LimiterPath, fmt.Sprintf("the path delivers at most %s however large the transfer; the link %s is %s", units.BitRate(ceiling), e.LinkName, units.BitRate(e.LinkBytesPerSecond))}
	}
	return f
}
