// Package model predicts the cost of moving a KV cache from a prefill node to a decode
// node, and judges a measurement against that prediction.
//
// It owns the arithmetic only. Every function is pure: it takes bytes, counts and
// parameters and does no I/O. The command line, a run and a report call it; it calls none
// of them.
//
// All quantities are in base units: bytes, seconds, bytes a second. Rates are one way. A
// quantity with spread is an [Interval] at 95 %.
//
// A [Link] and its framing give a bandwidth. A [Cost] turns bytes, descriptors and
// transfers into seconds; it comes from a data sheet ([SpecCost]) or from a calibration
// ([FitCost]). [Cost.ExposedSeconds] overlaps the layers of a request with prefill. A
// [Load] queues requests on the link. [Prefill] and [Scenario] decide whether
// disaggregation pays. [Compare] divides measured by predicted, and [Evidence] names the
// first limiter that the observations support.
package model
