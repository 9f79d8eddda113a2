package bench

import (
	"kvbench/model"
	"kvbench/results"
	"kvbench/transport"
)

// addStaging adds the staging of another worker's connection. The costs of each stage
// alone stay the first worker's.
func addStaging(s, more *transport.Staging) *transport.Staging {
	if s == nil || more == nil {
		return s
	}
	sum := *s
	sum.PinnedBytes += more.PinnedBytes
	sum.PinSeconds += more.PinSeconds
	for _, stage := range []struct{ to, from *transport.StageTime }{
		{&sum.ToHost, &more.ToHost}, {&sum.Wire, &more.Wire}, {&sum.FromHost, &more.FromHost},
	} {
		stage.to.Chunks += stage.from.Chunks
		stage.to.Bytes += stage.from.Bytes
		stage.to.Seconds += stage.from.Seconds
		if stage.to.Seconds > 0 {
			stage.to.BytesPerSecond = float64(stage.to.Bytes) / stage.to.Seconds
		}
	}
	return &sum
}

// gpuPath returns how a run moved GPU memory, or an empty string for host memory.
func gpuPath(memory transport.MemoryKind, p transport.Path) string {
	switch {
	case memory != transport.CUDAMemory:
		return ""
	case p.Staging != nil:
		return results.Staged
	}
	return results.Direct
}

// predictStaged predicts the time of a cell's request through the pipeline of stages,
// from the cost of each stage alone, measured when the connection was made. It predicts
// nothing without staging, or under an emulated prefill, which paces the layers.
func predictStaged(cell *results.Cell, t results.Transport) {
	cell.Predicted.Staged = nil
	stages, chunkBytes := stageCosts(t)
	if stages == nil || cell.Overlap != nil || cell.Layers < 1 {
		return
	}
	chunks := 0 // no chunk holds bytes of two transfers
	for _, t := range runsOf(cell) {
		chunks += t.Count * int(max(1, (t.Bytes+chunkBytes-1)/chunkBytes))
	}
	cell.Predicted.Staged = prediction(interval(cell.Service50), model.Exactly(model.StagedSeconds(stages, chunks, cell.Bytes)))
}

// stageCosts returns the costs of a staged path's stages: the producer's copy to host,
// the wire as the initiator timed it, and the consumer's copy from host. It returns nil
// if any was not timed.
func stageCosts(t results.Transport) (stages []model.Cost, chunkBytes int64) {
	here, there := t.Staging, t.Consumer.Staging
	if here == nil || there == nil || here.ChunkBytes < 1 {
		return nil, 0
	}
	wire := here.Wire
	if wire.AloneBandwidth == 0 {
		wire = there.Wire
	}
	for _, s := range []transport.StageTime{here.ToHost, wire, there.FromHost} {
		if !(s.AloneBandwidth > 0) {
			return nil, 0
		}
		stages = append(stages, model.Cost{AlphaSeconds: s.AloneAlpha, BytesPerSecond: s.AloneBandwidth})
	}
	return stages, here.ChunkBytes
}
