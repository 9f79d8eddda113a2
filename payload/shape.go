package payload

import (
	"cmp"
	"slices"
)

// RankPair is the data that one prefill rank sends to one decode rank.
type RankPair struct {
	Prefill     int   // stage*TP + tensor rank
	Decode      int   // stage*TPDecode + tensor rank
	Bytes       int64 // rounded up to blocks, with scales
	Descriptors int64
}

// KindSummary is the layers of a model that have the same geometry.
type KindSummary struct {
	Layer         Layer
	Count         int     // layers of this kind
	Tokens        int64   // held by one of them
	BytesPerToken float64 // of all of them together, unbounded, with scales
	Bytes         int64   // of all of them together, without rounding to blocks
	StateBytes    int64   // of all of them together
}

// Shape is the size of a request. All sizes are bytes.
type Shape struct {
	Bytes          int64   // the whole model's KV in the format with its scales; windows clipped, no rounding to blocks, no state
	PublishedBytes int64   // the same as the format is advertised: no scales, no maps
	WireBytes      int64   // all rank pairs together: kept layers, replicas, whole blocks, and the state if the spec moves it
	StateBytes     int64   // fixed state of the whole model
	BytesPerToken  float64 // of one more token, every attention layer counted as unbounded

	Layers          int // of the model
	AttentionLayers int // layers that hold data for each token
	Kinds           []KindSummary
	Pairs           []RankPair // pairs that move data, by prefill and decode rank
	Notes           []string
}

// Pair returns one rank pair's row; false if it moves nothing.
func (s Shape) Pair(prefillRank, decodeRank int) (RankPair, bool) {
	i, ok := slices.BinarySearchFunc(s.Pairs, RankPair{Prefill: prefillRank, Decode: decodeRank}, comparePairs)
	if !ok {
		return RankPair{}, false
	}
	return s.Pairs[i], true
}

func comparePairs(a, b RankPair) int {
	return cmp.Or(cmp.Compare(a.Prefill, b.Prefill), cmp.Compare(a.Decode, b.Decode))
}

// Shape computes the totals and every rank pair's row in closed form: its running time does
// not grow with the tokens.
func (s Spec) Shape() (Shape, error) {
	if err := s.Validate(); err != nil {
		return Shape{}, err
	}
	r := s.resolved()
	shape := Shape{
		StateBytes:      s.Geometry.StateBytes(),
		BytesPerToken:   s.Geometry.BytesPerToken(s.Format),
		Layers:          len(s.Geometry.Layers),
		AttentionLayers: s.Geometry.AttentionLayers(),
		Kinds:           r.kinds(),
		Pairs:           r.pairs(),
	}
	for _, k := range shape.Kinds {
		shape.Bytes += k.Bytes
	}
	for i, l := range s.Geometry.Layers {
		shape.PublishedBytes += s.Format.published(l, i, s.Tokens)
	}
	for _, p := range shape.Pairs {
		shape.WireBytes += p.Bytes
	}
	shape.Notes = r.notes(shape)
	return shape, nil
}

// kinds sums the layers by geometry, over the whole model on one rank.
func (s Spec) kinds() []KindSummary {
	s.Layers, s.Layout, s.State = nil, Layout{}, false
	s.TP, s.TPDecode, s.PP, s.PPDecode = 1, 1, 1, 1
	at := map[Layer]int{}
	var kinds []KindSummary
	for _, c := range s.cells(0, 0) {
		i, ok := at[c.layer]
		if !ok {
			i = len(kinds)
			at[c.layer] = i
			kinds = append(kinds, KindSummary{Layer: c.layer, Tokens: held(c.layer, s.Tokens)})
		}
		k, n := &kinds[i], len(c.indices)
		k.Count += n
		k.StateBytes += int64(n) * c.layer.StateBytes
		k.BytesPerToken += float64(n) * s.Format.bytesPerToken(c.layer, c.indices[0])
		for _, p := range c.pools(s, 0, 0) {
			k.Bytes += int64(n) * p.bytes()
		}
	}
	return kinds
}

// held returns the number of n tokens that a layer holds: 0 if it is no attention layer.
func held(l Layer, n int64) int64 {
	if !l.Attention() {
		return 0
	}
	return l.Tokens(n)
}

// pairs sums every rank pair's pools. The stages of each side tile the layers, so walking
// both sides together visits each overlap once.
func (s Spec) pairs() []RankPair {
	sum := map[[2]int]RankPair{}
	layers := int64(len(s.Geometry.Layers))
	for ps, ds := 0, 0; ps < s.PP && ds < s.PPDecode; {
		for _, c := range s.cells(ps, ds) {
			s.addPairs(sum, c, ps, ds)
		}
		sourceEnd, destEnd := stage(layers, int64(s.PP), int64(ps)).end, stage(layers, int64(s.PPDecode), int64(ds)).end
		if sourceEnd <= destEnd {
			ps++
		}
		if destEnd <= sourceEnd {
			ds++
		}
	}
	pairs := make([]RankPair, 0, len(sum))
	for key, p := range sum {
		p.Prefill, p.Decode = key[0], key[1]
		pairs = append(pairs, p)
	}
	slices.SortFunc(pairs, comparePairs)
	return pairs
}

// addPairs adds a cell's bytes and descriptors to the rank pairs that move it.
func (s Spec) addPairs(sum map[[2]int]RankPair, c cell, ps, ds int) {
	times := int64(len(c.groups()))
	for d := range s.TPDecode {
		for _, p := range c.partners(s, d) {
			key := [2]int{ps*s.TP + int(p), ds*s.TPDecode + d}
			pair := sum[key]
			for _, q := range c.pools(s, int(p), d) {
				pair.Bytes += times * q.bytes()
				pair.Descriptors += times * q.descriptors(s.Layout)
			}
			sum[key] = pair
		}
	}
}
