package model

import (
	"math"
)

// LayerFinish is when each layer of a request has been delivered, in seconds on
// the clock of ready. Layer l is ready at ready[l] (prefill's own pace) and takes
// move[l] seconds on a path that moves one layer at a time, in order:
//
//	f_l = max(f_{l-1}, ready_l) + move_l
//
// The recurrence of a tandem queue with one server; it holds while transfers do
// not slow prefill down. The two slices have one length.
func LayerFinish(ready, move []float64) []float64 {
	finish := make([]float64, len(ready))
	before := math.Inf(-1)
	for l := range ready {
		before = max(before, ready[l]) + move[l]
		finish[l] = before
	}
	return finish
}

// Exposed is the part of a layer-wise transfer, in seconds, that TTFT pays: from
// the end of prefill, which is when the last layer is ready, to its delivery.
func Exposed(ready, move []float64) float64 {
	if len(ready) == 0 {
		return 0
	}
	last := len(ready) - 1
	return LayerFinish(ready, move)[last] - ready[last]
}

// ExposedUniform is [Exposed] for layers that all take compute seconds to prefill
// and move seconds to ship:
//
//	x + (L-1)·max(0, x-c)
//
// One layer is always exposed; more only where shipping is slower than prefill.
func ExposedUniform(layers int, compute, move float64) float64 {
	if layers <= 0 {
		return 0
	}
	return move + float64(layers-1)*max(0, move-compute)
}

// ExposedSeconds is the exposed time of a request of layers transfers with
// descriptors and bytes in all, evenly spread, that prefill takes prefillSeconds
// to compute. It is [ExposedUniform] with the startup taken out of the pipeline:
// with y the posting and wire time of one layer,
//
//	alpha + y + (L-1)·max(0, y' - prefill/L)
//
// where y' posts with a beta more than y: a layer that finds the path idle pays
// none. Without prefill to hide behind (0 seconds) it is [Cost.Seconds], to within
// one beta; that is also the exposed time without overlap of layers. On a path of two
// regimes layers that queue are one batch of the request's bytes, and y' is its mean,
// while a layer that finds the path idle is a batch of its own; the larger of what
// the two expose is taken.
func (c Cost) ExposedSeconds(layers, descriptors int, bytes int64, prefillSeconds float64) float64 {
	if layers <= 0 {
		return 0
	}
	l := float64(layers)
	post, mean := c.GammaSeconds*float64(descriptors)/l, c.WireSeconds(bytes)/l
	alone := overlapped(post, c.wire(float64(bytes)/l), c.Overlap)
	first, queued := overlapped(post, mean, c.Overlap), overlapped(post+c.BetaSeconds, mean, c.Overlap)
	return c.AlphaSeconds + max(alone, first+(l-1)*(queued-max(0, prefillSeconds)/l))
}

// StagedSeconds is the time to move bytes through stages one after another (GPU
// to host, wire, host to GPU), cut in chunks that follow each other:
//
//	Σ t_i + (k-1)·max t_i,  t_i = alpha_i + gamma_i + S/(k·B_i)
//
// The makespan of a linear pipeline. It holds while the stages share nothing; two
// that share a memory bus or a PCIe link are one stage with their times added.
func StagedSeconds(stages []Cost, chunks int, bytes int64) float64 {
	if chunks < 1 {
		chunks = 1
	}
	var sum, slowest float64
	for _, s := range stages {
		t := s.OverheadSeconds(1, 1)
		if bytes > 0 {
			t += float64(bytes) / float64(chunks) / s.BytesPerSecond
		}
		sum += t
		slowest = max(slowest, t)
	}
	return sum + float64(chunks-1)*slowest
}

// BestChunksEqual is the real-valued optimum for stages of equal startup alpha
// and bandwidth B: √((m-1)·S/(alpha·B)), which for two stages is the usual
// √(S/(alpha·B)). From d/dk of (m+k-1)·(alpha + S/(k·B)). One stage wants one chunk.
func BestChunksEqual(stages int, alphaSeconds, bytesPerSecond float64, bytes int64) float64 {
	if stages < 2 {
		return 1
	}
	return max(1, math.Sqrt(float64(stages-1)*float64(bytes)/(alphaSeconds*bytesPerSecond)))
}

// StreamsBandwidth is the rate in bytes a second of k streams that reach
// streamRate each on a link that carries linkRate: min(R_link, k·R_stream). It
// holds while each stream has a CPU and a queue of its own.
func StreamsBandwidth(streams int, linkRate, streamRate float64) float64 {
	return min(linkRate, float64(max(0, streams))*streamRate)
}

// IncastSeconds is the least time in which one receiver of bytesPerSecond takes
// bytes from each of several producers at once: N·S/B. Switch buffers that
// overflow only add to it.
func IncastSeconds(producers int, bytes int64, bytesPerSecond float64) float64 {
	return float64(producers) * Cost{BytesPerSecond: bytesPerSecond}.WireSeconds(bytes)
}
