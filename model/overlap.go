package model

import (
	"fmt"
	"math"

	"kvbench/internal/units"
)

// ExposedSeconds is the part of a layer-wise transfer, in seconds, that adds to TTFT: from
// the end of prefill, when the last of the L transfers is ready, to its delivery. Transfer
// l of 1..L is ready at C_l, when prefill has made its last layer. Prefill spends equal
// time on each layer, so if layers move one by one C_l is prefill·l/L. A path that moves
// one transfer at a time, in order, finishes them at
//
//	f_l = max(f_{l-1}, C_l) + x_l
//
// the recurrence of a tandem queue with one server. It assumes that transfers do not slow
// prefill down. Expanded, some transfer k finds the path idle and all later ones follow it
// without a pause; the k that finishes last counts:
//
//	f_L - C_L = max over k of x_k + ... + x_L - (C_L - C_k)
//
// (Algebra: Baccelli et al., Synchronization and Linearity, 1992.) Here transfers k..L are
// one batch of [Cost.Seconds], so the first of them pays no beta, the acknowledgement
// counts once, and the knee of a path with two regimes applies to the batch. Equal
// transfers on a path with one regime take alpha + y + (L-1)·max(0, y + beta - prefill/L),
// with y the posting and wire time of one. Without prefill (0 seconds) it is Cost.Seconds.
func (c Cost) ExposedSeconds(t Transfers, prefillSeconds float64) float64 {
	return mostExposed(t, prefillSeconds, c.KneeBytes > 0, func(k int) float64 {
		return c.Seconds(t.after(k)+1, t.rests[k].Descriptors, t.rests[k].Bytes)
	})
}

// mostExposed is the longest time that a batch exposes, over the batches of transfers k to
// the last, each taking seconds(k); 0 without transfers. Unless all is set, it skips
// batches that cannot be the longest on a path with one regime.
func mostExposed(t Transfers, prefillSeconds float64, all bool, seconds func(k int) float64) float64 {
	most := 0.0
	for k := range t.rests {
		if t.rests[k].within && !all {
			continue
		}
		most = max(most, seconds(k)-t.hidden(k, prefillSeconds))
	}
	return most
}

// hidden is the time from transfer k becoming ready to the end of prefill: C_L - C_k.
func (t Transfers) hidden(k int, prefillSeconds float64) float64 {
	if t.ahead(k) == 0 {
		return 0 // for any prefill
	}
	return max(0, prefillSeconds) * float64(t.ahead(k)) / float64(t.Layers())
}

// hidingSecondsPerByte is the greatest inverse bandwidth at which no batch of transfers
// exposes more than the last transfer alone.
func (c Cost) hidingSecondsPerByte(t Transfers, prefillSeconds float64) float64 {
	least := math.Inf(1)
	last := t.last()
	one := activity{c.PostSeconds(1, last.Descriptors), float64(last.Bytes)}
	for k, rest := range t.rests[:t.Count()-1] {
		if rest.within {
			continue
		}
		batch := activity{c.PostSeconds(t.after(k)+1, rest.Descriptors), float64(rest.Bytes)}
		least = min(least, batch.parts(one, t.hidden(k, prefillSeconds), c.Overlap))
	}
	return least
}

// activity is a batch's posting in seconds, and its bytes.
type activity struct{ post, bytes float64 }

// parts is the least inverse bandwidth from which a takes over hidden seconds longer than
// b, which has fewer bytes. The difference is piecewise linear. It bends at the inverse
// bandwidth at which posting and wire of a, or of b, take equally long; beyond both bends
// it grows with a's surplus of bytes.
func (a activity) parts(b activity, hidden, overlap float64) float64 {
	excess := func(inverse float64) float64 {
		return overlapped(a.post, a.bytes*inverse, overlap) - overlapped(b.post, b.bytes*inverse, overlap) - hidden
	}
	at, value := 0.0, excess(0)
	if value > 0 {
		return 0
	}
	bends := [2]float64{a.post / a.bytes, b.post / b.bytes}
	for _, bend := range [2]float64{min(bends[0], bends[1]), max(bends[0], bends[1])} {
		v := excess(bend)
		if v > 0 {
			return at + (bend-at)*value/(value-v)
		}
		at, value = bend, v
	}
	return at - value/(a.bytes-b.bytes)
}

// PredictExposed is [Cost.ExposedSeconds] with the 95 % interval of that time on this path.
// The exposed time is a difference: the uncertainty of a batch, in seconds, from
// coefficients and lack of fit stays whole however much of the batch prefill hides.
func (f Fit) PredictExposed(t Transfers, prefillSeconds float64) Interval {
	h, x := f.central()
	rows := make([]coefficients, t.Count())
	for k, rest := range t.rests {
		rows[k] = h.row(t.after(k)+1, rest.Descriptors, rest.Bytes)
	}
	exposed := func(x coefficients) float64 {
		return mostExposed(t, prefillSeconds, f.Second != nil, func(k int) float64 { return h.seconds(x, rows[k]) })
	}
	// lacking is the exposed time with every batch off by its lack of fit.
	lacking := func(sign float64) float64 {
		return mostExposed(t, prefillSeconds, true, func(k int) float64 {
			seconds := h.seconds(x, rows[k])
			return seconds * (1 + sign*z95*f.lackAt(seconds))
		})
	}
	value := exposed(x)
	i := f.percentiles(value, exposed)
	i.Low = max(0, value-math.Hypot(value-i.Low, value-lacking(-1)))
	i.High = value + math.Hypot(i.High-value, lacking(+1)-value)
	return i
}

// TrustworthyExposed is [Fit.TrustworthyFor] for the exposed time of a request.
func (f Fit) TrustworthyExposed(t Transfers, prefillSeconds float64) error {
	i := f.PredictExposed(t, prefillSeconds)
	if !tooOpen(i) {
		return nil
	}
	return fmt.Errorf("%w: what %s in %s leave exposed is %s but could be %s to %s; %s",
		ErrUntrustworthy, units.Bytes(t.Bytes()), units.Count(t.Count(), "transfer"), units.Seconds(i.Value), units.Seconds(i.Low), units.Seconds(i.High), calibrateMore)
}

// tooOpen reports whether a prediction's interval is too wide for a verdict.
func tooOpen(i Interval) bool { return i.High-i.Low > 2*openPrediction*i.Value }
