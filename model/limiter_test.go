package model

import (
	"strings"
	"testing"
)

// onWire is a cell of one request of 1 GB at a time that took twice the 0.1 s
// predicted on a path of 10 GB/s with engine-like descriptors, and of which nothing
// else was observed.
func onWire(change func(*Evidence)) Evidence {
	e := Evidence{
		GoodputBytesPerSecond: 5e9, MeasuredSeconds: 0.2, ServiceSeconds: 0.2, LinkName: "10GB/s", LinkBytesPerSecond: 10e9,
		Cost: Cost{AlphaSeconds: 1e-4, GammaSeconds: 3e-6, BytesPerSecond: 10e9}, Transfers: 1, Descriptors: 1, Bytes: 1e9,
		Streams: 1, Lanes: 1, InFlight: 1, Producer: Processor{0.3, 32}, Consumer: Processor{0.4, 32},
	}
	change(&e)
	return e
}

// onHost is a cell over the loopback of a host with two CPUs whose cores copy 7 GB/s.
func onHost(goodput, producer, consumer float64) func(*Evidence) {
	return func(e *Evidence) {
		e.SameHost, e.Copies, e.GoodputBytesPerSecond, e.CopyBytesPerSecond = true, 2, goodput, 7e9
		e.Producer, e.Consumer = Processor{producer, 2}, Processor{consumer, 2}
	}
}

func rates(r ...StreamRate) func(*Evidence) { return func(e *Evidence) { e.StreamRates = r } }

func TestLimiters(t *testing.T) {
	helpful := rates(StreamRate{1, 5e9, 5.2e9}, StreamRate{2, 8e9, 8.1e9}, StreamRate{4, 9.5e9, 9.6e9})
	useless := rates(StreamRate{1, 5e9, 5.2e9}, StreamRate{2, 4.9e9, 5e9}, StreamRate{4, 4e9, 4.1e9})
	for _, c := range []struct {
		name, want, says string
		ratio            float64
		change           func(*Evidence)
	}{
		{"a slower device", LimiterDevice, "eth0 runs at 1 Gbit/s, the link 100gbe is 100 Gbit/s", 106, func(e *Evidence) {
			*e = Evidence{GoodputBytesPerSecond: 118e6, LinkName: "100gbe", LinkBytesPerSecond: 12.5e9, DeviceName: "eth0", DeviceBytesPerSecond: 125e6}
		}},
		{"a slower device, and slower even than that", LimiterDevice, "eth0 runs at 10 Gbit/s, the link 100gbe is 100 Gbit/s; goodput of 952 Mbit/s is below even that, and nothing that was observed", 106, func(e *Evidence) {
			*e = Evidence{GoodputBytesPerSecond: 119e6, LinkName: "100gbe", LinkBytesPerSecond: 12.5e9, DeviceName: "eth0", DeviceBytesPerSecond: 1.25e9}
		}},
		{"a slower device, and a stream that does not fill it", LimiterStream, "use --streams 4; and eth0 runs at 25 Gbit/s, the link 100gbe is 100 Gbit/s", 11, func(e *Evidence) {
			*e = Evidence{GoodputBytesPerSecond: 1.1e9, LinkName: "100gbe", LinkBytesPerSecond: 12.5e9, DeviceName: "eth0", DeviceBytesPerSecond: 3.125e9}
			rates(StreamRate{1, 1.1e9, 1.1e9}, StreamRate{2, 2e9, 2e9}, StreamRate{4, 2.9e9, 2.9e9})(e)
		}},
		{"registration", LimiterRegistration, "registration took 100 ms of 200 ms", 2, func(e *Evidence) { e.RegistrationSeconds = 0.1 }},
		// 0.2 s measured for 0.1 s predicted leave 100 ms to account for.
		{"descriptors that are most of what is missed", LimiterDescriptors, "20000 descriptors cost 60 ms, and 100 ms are beyond the prediction; the bytes alone take 100 ms", 2,
			func(e *Evidence) { e.Descriptors, e.DescriptorSeconds = 20000, 0.06 }},
		{"descriptors that are less than half of it", LimiterUnexplained, "", 2, func(e *Evidence) { e.Descriptors, e.DescriptorSeconds = 13000, 0.04 }},
		// A wire of 2 GB/s: 1e9 bytes take 0.5 s, 200000 descriptors of 3 µs 0.6 s, the link
		// 0.1 s, so 1.9 of the 2 s are beyond it, of which 0.6 are more than a quarter.
		{"descriptors that cost more than the bytes", LimiterDescriptors, "200000 descriptors cost 600 ms, and 1.9 s are beyond the prediction; the bytes alone take 500 ms", 20, func(e *Evidence) {
			e.MeasuredSeconds, e.Cost.BytesPerSecond, e.PathBytesPerSecond, e.GoodputBytesPerSecond = 2, 2e9, 2e9, 5e8
			e.Descriptors, e.DescriptorSeconds, e.WireSeconds = 200000, 0.6, 0.4
		}},
		{"and are less than a quarter of what is missed", LimiterUnexplained, "", 40, func(e *Evidence) {
			e.MeasuredSeconds, e.Cost.BytesPerSecond, e.PathBytesPerSecond, e.GoodputBytesPerSecond = 4, 2e9, 2e9, 2.5e8
			e.Descriptors, e.DescriptorSeconds, e.WireSeconds = 200000, 0.6, 0.4
		}},
		{"and segments are lost", LimiterRetransmits, "", 20, func(e *Evidence) {
			e.MeasuredSeconds, e.Cost.BytesPerSecond, e.Retransmits, e.Segments = 2, 2e9, 5000, 1e6
			e.Descriptors, e.DescriptorSeconds = 200000, 0.6
		}},
		{"queueing", LimiterQueueing, "4 requests", 4, func(e *Evidence) { e.InFlight, e.ServiceSeconds = 4, 0.39 }},
		{"slower than queueing allows", LimiterUnexplained, "", 20, func(e *Evidence) { e.InFlight, e.ServiceSeconds = 4, 2 }},
		{"as slow as sharing would make it, and nothing shared", LimiterRetransmits, "5000 of 1000000", 2, func(e *Evidence) { e.InFlight, e.ServiceSeconds, e.Retransmits, e.Segments = 1.05, 0.16, 5000, 1e6 }},
		{"retransmits", LimiterRetransmits, "5000 of 1000000", 2, func(e *Evidence) { e.Retransmits, e.Segments = 5000, 1e6 }},
		{"receive window", LimiterReceiveWindow, "40 %", 2, func(e *Evidence) { e.ReceiveWindowLimited = 0.4 }},
		{"one stream", LimiterStream, "one stream is at its ceiling: 1 stream carries 40 Gbit/s, and 4 streams carry 76 Gbit/s on the same path; use --streams 4", 2, helpful},
		{"one stream, on a core of its own", LimiterStream, "uses 0.97 cores", 2, func(e *Evidence) { helpful(e); e.Producer.Cores = 0.97 }},
		{"two streams", LimiterStreams, "2 streams are at their ceiling", 2, rates(StreamRate{2, 5e9, 5e9}, StreamRate{4, 9e9, 9e9})},
		{"more streams within the scatter", LimiterPath, "more streams do not clearly help: 1 stream carries 40 Gbit/s, but up to 52 Gbit/s in a batch, 2 streams carry 48.8 Gbit/s", 2, rates(StreamRate{1, 5e9, 6.5e9}, StreamRate{2, 6.1e9, 6.6e9})},
		{"a busy consumer", LimiterCPU, "the consumer's 0.99", 2, func(e *Evidence) { useless(e); e.Consumer.Cores = 0.99 }},
		{"a busy host of one core", LimiterCPU, "cores", 2, func(e *Evidence) { e.Lanes, e.Consumer = 4, Processor{0.9, 1} }},
		// 0.99 of a core at one end is enough; what the other uses is not said where nobody looked.
		{"a busy producer, and an unknown consumer", LimiterCPU, "the producer's process uses 0.99 cores, for 1 lane(s); more", 2, func(e *Evidence) { useless(e); e.Producer.Cores, e.Consumer = 0.99, Processor{} }},
		{"a busy consumer, and an unknown producer", LimiterCPU, "the consumer's process uses 0.99 cores, for 1 lane(s); more", 2, func(e *Evidence) { useless(e); e.Producer, e.Consumer.Cores = Processor{}, 0.99 }},
		// 2·3.5/7 is 1 core that copies at both ends, of which the producer's 0.9 are one: no share of that is known.
		{"loopback, mostly copies, and an unknown consumer", LimiterCPU, "the producer's process uses 0.90 cores, for 1 lane(s); whether", 3, func(e *Evidence) { onHost(3.5e9, 0.9, 0)(e); e.Consumer = Processor{} }},
		{"loopback, of which no processor time is known", LimiterUnexplained, "no wire is between them; whether", 5, func(e *Evidence) { onHost(3.5e9, 0, 0)(e); e.Producer, e.Consumer = Processor{}, Processor{} }},
		{"four streams on one core", LimiterUnexplained, "", 2, func(e *Evidence) { e.Lanes, e.Consumer.Cores = 4, 0.99 }},
		// 2·2.4/7 is 0.69 of the 1.83 cores in use; 2·3.5/7 is 1 of 1.8.
		{"loopback, mostly TCP", LimiterCPU, "0.69 of a core of that is copying", 5, onHost(2.4e9, 0.91, 0.92)},
		{"loopback, mostly copies", LimiterMemory, "takes 1.00 of the 1.80 cores", 3, onHost(3.5e9, 0.9, 0.9)},
		{"shared memory, whose copies are not known", LimiterCPU, "for 1 lane(s); more", 3, func(e *Evidence) { useless(e); onHost(3.5e9, 0.9, 0.9)(e); e.Copies = 0 }},
		{"loopback, four streams on two cores", LimiterCPU, "for 4 lane(s)", 5, func(e *Evidence) { onHost(1.5e9, 0.88, 0.9)(e); e.Lanes = 4 }},
		{"loopback, idle", LimiterUnexplained, "no wire is between them: the producer's process uses 0.40 cores", 5, onHost(3.5e9, 0.4, 0.4)},
		{"a slower path", LimiterPath, "over 1 stream the path delivers at most 40 Gbit/s however large the transfer; the link 10GB/s is 80 Gbit/s; whether more streams carry more was not tried", 2, func(e *Evidence) { e.PathBytesPerSecond = 5e9 }},
		{"a slower path, whatever the streams", LimiterPath, "more streams do not help: 1 stream carries 40 Gbit/s, 2 streams carry 39.2 Gbit/s", 2, useless},
		{"a slower path, of two streams", LimiterPath, "over 2 streams the path delivers at most 40 Gbit/s", 2, func(e *Evidence) { e.Streams, e.PathBytesPerSecond = 2, 5e9 }},
		{"an unexplained one that more streams do not help", LimiterUnexplained, "at 16 Gbit/s, and nothing that was observed accounts for it; more streams do not help: 1 stream carries 76 Gbit/s, 2 streams carry 72 Gbit/s", 5, func(e *Evidence) {
			e.GoodputBytesPerSecond = 2e9
			rates(StreamRate{1, 9.5e9, 9.6e9}, StreamRate{2, 9e9, 9.1e9})(e)
		}},
		// 1e9 bytes at 2 GB/s take 0.5 s of the 0.7, 0.4 s longer than at 10 GB/s.
		{"a slower path, and descriptors", LimiterPath, "at most 16 Gbit/s however large the transfer; the link 10GB/s is 80 Gbit/s; that is 400 ms of the 600 ms beyond the prediction, and 60000 descriptors are 180 ms", 7, func(e *Evidence) {
			e.MeasuredSeconds, e.Cost.BytesPerSecond, e.PathBytesPerSecond, e.GoodputBytesPerSecond = 0.7, 2e9, 2e9, 1.43e9
			e.Descriptors, e.DescriptorSeconds, e.WireSeconds = 60000, 0.18, 0.4
		}},
		{"a slower path that accounts for little", LimiterUnexplained, "nothing that was observed", 20, func(e *Evidence) {
			e.MeasuredSeconds, e.PathBytesPerSecond, e.GoodputBytesPerSecond, e.WireSeconds = 2, 2e9, 5e8, 0.4
		}},
		{"nothing", LimiterUnexplained, "nothing that was observed", 2, func(e *Evidence) { e.Retransmits, e.Segments = 1, 1e6 }},
		{"too fast", LimiterUnexplained, "another path", 0.5, func(e *Evidence) { e.GoodputBytesPerSecond = 20e9 }},
	} {
		f := onWire(c.change).Limiter(c.ratio)
		if f.Limiter != c.want || !strings.Contains(f.Evidence, c.says) {
			t.Errorf("%s: %s: %q, want %s with %q", c.name, f.Limiter, f.Evidence, c.want, c.says)
		}
	}
}
