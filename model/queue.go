package model

import "math"

// Load is a stream of requests that arrive at random (Poisson) at one shared link.
type Load struct {
	ArrivalsPerSecond float64
	// ServiceSeconds is the mean time that a request alone occupies the link.
	ServiceSeconds float64
	// ServiceSquared is the mean of the square of that time, in s². 0 means that all
	// requests are alike: the square of the mean is used.
	ServiceSquared float64
}

// Queueing is the effect of a load on a link. Times of an unstable queue are +Inf: they
// grow for as long as the load lasts.
type Queueing struct {
	Utilization float64 // ρ: offered work over capacity
	Stable      bool    // ρ < 1
	// WaitFCFS is the mean wait before service, first come first served, in seconds.
	WaitFCFS float64
	// WaitPS is the mean time beyond service when flows share the link fairly, in seconds.
	WaitPS       float64
	ResponseFCFS float64 // WaitFCFS + service
	ResponsePS   float64 // WaitPS + service
}

// Queue predicts the mean waits:
//
//	ρ = λ·E[S]
//	FCFS  λ·E[S²] / (2(1-ρ))    Pollaczek-Khinchine, M/G/1; M/D/1 for one size
//	PS    E[S]·ρ/(1-ρ)          M/G/1 processor sharing, for any distribution
//
// (Kleinrock, Queueing Systems I and II.) TCP flows on one link lie between the two,
// nearer PS. The formulas hold for Poisson arrivals and long runs: at ρ = 0.9 a mean
// needs thousands of requests to settle.
func (l Load) Queue() Queueing {
	second := l.ServiceSquared
	if second == 0 {
		second = l.ServiceSeconds * l.ServiceSeconds
	}
	q := Queueing{Utilization: l.ArrivalsPerSecond * l.ServiceSeconds}
	q.Stable = q.Utilization < 1
	if !q.Stable {
		inf := math.Inf(1)
		q.WaitFCFS, q.WaitPS, q.ResponseFCFS, q.ResponsePS = inf, inf, inf, inf
		return q
	}
	q.WaitFCFS = l.ArrivalsPerSecond * second / (2 * (1 - q.Utilization))
	q.WaitPS = l.ServiceSeconds * q.Utilization / (1 - q.Utilization)
	q.ResponseFCFS = q.WaitFCFS + l.ServiceSeconds
	q.ResponsePS = q.WaitPS + l.ServiceSeconds
	return q
}

// OfferedBytesPerSecond is the payload rate that arrivals of one size put on the
// network: λ·S. A slower link is unstable in any queueing order.
func OfferedBytesPerSecond(arrivalsPerSecond float64, bytes int64) float64 {
	return arrivalsPerSecond * float64(bytes)
}

// ReplicaBytesPerSecond is the rate that one busy prefill replica ships: κ·(tokens/s)
// with κ the KV bytes of a token. From this bandwidth on, prefill hides a layer-wise
// transfer.
func ReplicaBytesPerSecond(bytesPerToken, tokensPerSecond float64) float64 {
	return bytesPerToken * tokensPerSecond
}
