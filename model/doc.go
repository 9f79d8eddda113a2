// Package model predicts the time to ship a KV cache from a prefill node to a decode
// node, and judges a measurement against that prediction.
//
// It owns the arithmetic and nothing else: every function is pure, takes bytes, counts
// and parameters, and does no I/O. The command line, a run and a report call it; it
// calls none of them.
//
// Quantities are base units throughout: bytes, seconds, bytes a second. Rates are one
// way. A quantity that has spread is an [Interval] at 95 %.
//
// The chain is: a [Link] and its framing give a bandwidth; a [Cost] turns bytes,
// descriptors and transfers into seconds, either from a data sheet ([SpecCost]) or
// fitted to a calibration ([FitCost]); [Cost.ExposedSeconds] overlaps the layers of a
// request with prefill; a [Load] queues requests on the link; [Prefill] and [Scenario]
// decide whether disaggregation pays. [Compare] and [Evidence] close the loop: measured
// over predicted, and the first limiter that the evidence supports.
package model
