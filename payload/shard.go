package payload

// slice is the part of one dimension that a rank pair moves: n items of the source,
// from sourceAt on, to the destination, from destAt on.
type slice struct {
	source, sourceAt int64 // items the source holds, and the first that moves
	dest, destAt     int64 // the same at the destination
	n                int64
}

var one = slice{source: 1, dest: 1, n: 1}

// whole reports whether both sides hold exactly the items that move, so that the
// dimension around it stays contiguous.
func (s slice) whole() bool { return s.source == s.n && s.dest == s.n }

// span is a range of heads or layers, end excluded.
type span struct{ start, end int64 }

func (s span) len() int64 { return s.end - s.start }

// intersect returns the overlap of two spans; its length is 0 or less if there is none.
func (s span) intersect(o span) span { return span{max(s.start, o.start), min(s.end, o.end)} }

// cut returns the slice that a source and a destination span share.
func cut(source, dest span) slice {
	both := source.intersect(dest)
	return slice{
		source: source.len(), sourceAt: both.start - source.start,
		dest: dest.len(), destAt: both.start - dest.start,
		n: both.len(),
	}
}

// headsOf returns the heads of one of tp ranks: an equal share, or, if there are fewer
// heads than ranks, one head on each group of tp/heads ranks (Megatron-LM's and vLLM's
// rule).
func headsOf(heads, tp, rank int64) span {
	if tp <= heads {
		share := heads / tp
		return span{rank * share, (rank + 1) * share}
	}
	head := rank / (tp / heads)
	return span{head, head + 1}
}

// sources returns the prefill ranks that decode rank d pulls heads from, ascending. If
// prefill ranks hold copies of a head, the decode ranks that need it are spread over
// the copies evenly. A latent is one head.
func sources(heads, tp, tpDecode, d int64) []int64 {
	want := headsOf(heads, tpDecode, d)
	if tp <= heads {
		share := heads / tp
		return count(want.start/share, (want.end-1)/share)
	}
	copies, wanters, turn := tp/heads, int64(1), int64(0)
	if tpDecode > heads {
		wanters = tpDecode / heads
		turn = d % wanters
	}
	ranks := make([]int64, 0, want.len())
	for h := want.start; h < want.end; h++ {
		ranks = append(ranks, h*copies+turn*copies/wanters)
	}
	return ranks
}

// count returns from, from+1, ..., to.
func count(from, to int64) []int64 {
	n := make([]int64, 0, to-from+1)
	for i := from; i <= to; i++ {
		n = append(n, i)
	}
	return n
}

// stage returns the layers of one of pp pipeline stages: an equal share, and one more
// for each of the stages before the last while any are left over, as in vLLM (the last
// stage also runs the output head).
func stage(layers, pp, s int64) span {
	share, over := layers/pp, layers%pp
	extra := func(i int64) int64 { return min(max(i-(pp-1-over), 0), over) } // stages before i that have an extra layer
	return span{s*share + extra(s), (s+1)*share + extra(s+1)}
}
