package model

import (
	"fmt"

	"kvbench/internal/units"
)

// Evidence holds the observations of both ends for a cell. A zero field is an
// observation that was not made; it supports no limiter.
type Evidence struct {
	GoodputBytesPerSecond float64 // measured, of the cell
	MeasuredSeconds       float64 // the judged time: p50 of the service, or of the exposed time
	ServiceSeconds        float64 // p50 from the real start

	LinkName             string  // the link assumed by the spec prediction
	LinkBytesPerSecond   float64 // its line rate
	DeviceName           string  // the interface that carried the data
	DeviceBytesPerSecond float64 // its real line rate, as the kernel reports it
	PathBytesPerSecond   float64 // rate that large batches approach with the run's streams, from calibration
	Streams              int     // connections of one request

	// StreamRates are the rates of connections of growing numbers of streams, tried
	// after the cells were measured. The run's own number comes first.
	StreamRates []StreamRate

	SameHost               bool    // loopback or shared memory: copies, not a wire
	Copies                 int     // of each byte by the processors of both ends, through the kernel; 0: unknown
	CopyBytesPerSecond     float64 // memory copy of one core of this host
	Lanes                  int     // streams of all requests in flight, each with a thread at either end
	Producer, Consumer     Processor
	Retransmits, Segments  int64   // of the data connections
	ReceiveWindowLimited   float64 // share of the busy time that the sender was stopped by the peer's window
	RegistrationSeconds    float64 // registration inside the timed path, a request
	InFlight               float64 // requests on the path at a time, mean over the time with any
	Transfers, Descriptors int     // of a request
	Bytes                  int64

	Cost Cost // fitted; zero without a fit
	// DescriptorSeconds is the part of MeasuredSeconds that the fit attributes to
	// descriptors, beyond the prediction's charge for them. It is 0 if the fit cannot
	// separate gamma from 0.
	DescriptorSeconds float64
	// WireSeconds is the part of MeasuredSeconds that the bandwidth of
	// [Evidence.Ceiling] accounts for, beyond the wire time of the prediction.
	WireSeconds float64
}

// Finding is the first limiter that the evidence supports. Its rates are bits a second,
// as in link names; only a core's copy rate is bytes a second.
type Finding struct {
	Limiter  string // a name to group by
	Evidence string // one sentence
}

// The limiters, as a verdict prints them.
const (
	LimiterDevice        = "slower device"
	LimiterRegistration  = "registration"
	LimiterDescriptors   = "descriptors"
	LimiterQueueing      = "queueing"
	LimiterRetransmits   = "retransmits"
	LimiterReceiveWindow = "receive window"
	LimiterStream        = "one stream"
	LimiterStreams       = "too few streams"
	LimiterMemory        = "memory bandwidth"
	LimiterCPU           = "cpu"
	LimiterPath          = "slower path"
	LimiterUnexplained   = "unexplained"
)

// Thresholds: an observation beyond its threshold counts as the reason.
const (
	slowerDevice      = 0.9   // of the named link's rate
	nearDevice        = 0.5   // of the device's rate
	busyCPU           = 0.85  // of a core: the rest goes to wake-ups and waiting for the other end
	manyRetransmits   = 0.001 // of segments: TCP's rate falls with 1/sqrt(loss)
	windowShare       = 0.2   // of the busy time
	queueingShare     = 1.25  // requests at a time, and their service over service alone
	registrationShare = 0.1   // of a request's service time
	accountedShare    = 0.5   // of the time missed, which is measured minus predicted
	outweighShare     = 0.25  // of that time, if descriptors cost more than the bytes
	moreStreams       = 1.2   // goodput with more streams over the goodput with the run's number
	atCeiling         = 0.85  // of a ceiling that was measured
	copyShare         = 0.5   // of the processor time
)

// Limiter names the first limiter that the evidence supports for a measurement with the
// given ratio to the prediction. It tries the most conclusive first: facts of the
// set-up, time that is accounted for, counters with one cause, the experiment with more
// streams, ceilings, and last the costs in the fit that explain less than most of the
// time. A measurement faster than predicted has no limiter.
func (e Evidence) Limiter(ratio float64) Finding {
	if ratio < 1 {
		return e.faster(ratio)
	}
	missed := e.MeasuredSeconds * (1 - 1/ratio)
	device := e.slowDevice()
	if e.DeviceAccounts() {
		return Finding{LimiterDevice, device}
	}
	for _, look := range []func() Finding{e.registration, func() Finding { return e.descriptors(missed) }, e.queueing,
		e.retransmits, e.window, e.stream, e.memory, e.cpu,
		func() Finding { return e.outweighing(missed) }, func() Finding { return e.path(missed) }} {
		if f := look(); f.Limiter != "" {
			if device != "" {
				f.Evidence += "; and " + device
			}
			return f
		}
	}
	if device != "" {
		return Finding{LimiterDevice, fmt.Sprintf("%s; goodput of %s is below even that, and nothing that was observed accounts for it", device, units.BitRate(e.GoodputBytesPerSecond)) + e.onOneHost() + e.noMoreStreams()}
	}
	text := fmt.Sprintf("measured %.3g times the prediction at %s, and nothing that was observed accounts for it", ratio, units.BitRate(e.GoodputBytesPerSecond))
	return Finding{LimiterUnexplained, text + e.onOneHost() + e.noMoreStreams()}
}

func (e Evidence) faster(ratio float64) Finding {
	text := fmt.Sprintf("measured %.3g times the prediction: faster than predicted", ratio)
	if e.GoodputBytesPerSecond > e.LinkBytesPerSecond && e.LinkBytesPerSecond > 0 {
		text += fmt.Sprintf("; %s exceeds the line rate of %s (%s), so the data took another path or the link is named too slow",
			units.BitRate(e.GoodputBytesPerSecond), e.LinkName, units.BitRate(e.LinkBytesPerSecond))
	}
	return Finding{LimiterUnexplained, text}
}

// slowDevice describes a device slower than the named link; it is empty if the device
// is as fast or its rate is unknown.
func (e Evidence) slowDevice() string {
	if e.DeviceBytesPerSecond <= 0 || e.DeviceBytesPerSecond >= slowerDevice*e.LinkBytesPerSecond {
		return ""
	}
	return fmt.Sprintf("%s runs at %s, the link %s is %s", e.DeviceName, units.BitRate(e.DeviceBytesPerSecond), e.LinkName, units.BitRate(e.LinkBytesPerSecond))
}

// DeviceAccounts reports whether a device slower than the named link limits the
// goodput: the goodput is near the device's rate.
func (e Evidence) DeviceAccounts() bool {
	return e.slowDevice() != "" && e.GoodputBytesPerSecond >= nearDevice*e.DeviceBytesPerSecond
}

func (e Evidence) registration() (f Finding) {
	if e.ServiceSeconds > 0 && e.RegistrationSeconds > registrationShare*e.ServiceSeconds {
		f = Finding{LimiterRegistration, fmt.Sprintf("memory registration took %s of %s in the timed path", units.Seconds(e.RegistrationSeconds), units.Seconds(e.ServiceSeconds))}
	}
	return f
}

// descriptors tests whether descriptors account for most of missed, the measured
// seconds beyond the prediction. If the fit is right and the wire as predicted, the
// test passes whenever gamma·N > S/B, and it can pass below that.
func (e Evidence) descriptors(missed float64) (f Finding) {
	if e.DescriptorSeconds > accountedShare*missed {
		f = Finding{LimiterDescriptors, e.descriptorText(missed)}
	}
	return f
}

// outweighing tests whether descriptors cost more than the bytes that they carry,
// gamma·N > S/B, on a path that is slower than predicted for other reasons too.
func (e Evidence) outweighing(missed float64) (f Finding) {
	if e.DescriptorSeconds > e.Cost.WireSeconds(e.Bytes) && e.DescriptorSeconds > outweighShare*missed {
		f = Finding{LimiterDescriptors, e.descriptorText(missed) + e.onOneHost()}
	}
	return f
}

func (e Evidence) descriptorText(missed float64) string {
	return fmt.Sprintf("%d descriptors cost %s, and %s are beyond the prediction; the bytes alone take %s",
		e.Descriptors, units.Seconds(e.DescriptorSeconds), units.Seconds(missed), units.Seconds(e.Cost.WireSeconds(e.Bytes)))
}

// queueing tests whether requests shared the path. Only service time is judged, so a
// request's wait before its start does not count.
func (e Evidence) queueing() (f Finding) {
	if e.InFlight < queueingShare {
		return f
	}
	// n requests that share a path fairly each take n times as long.
	alone := e.Cost.Seconds(e.Transfers, e.Descriptors, e.Bytes)
	if alone > 0 && e.ServiceSeconds > queueingShare*alone && e.ServiceSeconds < 1.1*e.InFlight*alone {
		f = Finding{LimiterQueueing, fmt.Sprintf("%.2g requests at a time share the link: %s each, %s for one alone", e.InFlight, units.Seconds(e.ServiceSeconds), units.Seconds(alone))}
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

// Ceiling returns the highest rate, in bytes a second, that large transfers approached
// with the run's own streams, by calibration or in the trial of more streams; 0 without
// either. tried reports that it is from the trial: then no fit accounts for it.
func (e Evidence) Ceiling() (bytesPerSecond float64, tried bool) {
	own, _ := e.streamRates()
	return max(e.PathBytesPerSecond, own.BytesPerSecond), own.BytesPerSecond > e.PathBytesPerSecond
}

// path tests for a path slower than its link: large batches flow steadily below the
// link's rate, and the requests either come close to that rate or are slow mostly
// because of it.
func (e Evidence) path(missed float64) (f Finding) {
	ceiling, _ := e.Ceiling()
	if ceiling <= 0 || ceiling >= slowerDevice*e.LinkBytesPerSecond {
		return f
	}
	text := fmt.Sprintf("over %s the path delivers at most %s however large the transfer; the link %s is %s",
		units.Count(e.Streams, "stream"), units.BitRate(ceiling), e.LinkName, units.BitRate(e.LinkBytesPerSecond))
	switch {
	case e.GoodputBytesPerSecond >= atCeiling*ceiling:
	case e.WireSeconds > accountedShare*missed:
		text += fmt.Sprintf("; that is %s of the %s beyond the prediction", units.Seconds(e.WireSeconds), units.Seconds(missed))
		if e.DescriptorSeconds > 0 {
			text += fmt.Sprintf(", and %d descriptors are %s", e.Descriptors, units.Seconds(e.DescriptorSeconds))
		}
	default:
		return f
	}
	return Finding{LimiterPath, text + e.onOneHost() + e.noMoreStreams()}
}
