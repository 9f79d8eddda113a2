package model

import "math"

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
// √(S/(alpha·B)). From d/dk of (m+k-1)·(alpha + S/(k·B)). With one stage, one chunk is best.
func BestChunksEqual(stages int, alphaSeconds, bytesPerSecond float64, bytes int64) float64 {
	if stages < 2 {
		return 1
	}
	return max(1, math.Sqrt(float64(stages-1)*float64(bytes)/(alphaSeconds*bytesPerSecond)))
}

// StreamsBandwidth is the rate in bytes a second of k streams that reach streamRate each on
// a link that carries linkRate: min(R_link, k·R_stream). It assumes a separate CPU and
// queue for each stream.
func StreamsBandwidth(streams int, linkRate, streamRate float64) float64 {
	return min(linkRate, float64(max(0, streams))*streamRate)
}

// IncastSeconds is the least time for one receiver of bytesPerSecond to take bytes from
// each of several producers at once: N·S/B. Switch buffers that overflow only add to it.
func IncastSeconds(producers int, bytes int64, bytesPerSecond float64) float64 {
	return float64(producers) * Cost{BytesPerSecond: bytesPerSecond}.WireSeconds(bytes)
}
