package payload

import "slices"

// cell is the layers of one class that move between a prefill and a decode stage.
type cell struct {
	layer    Layer
	indices  []int // the layers in the model, ascending
	across   slice // the class's layers in a cross-layer block of either stage
	segments []segment
	cross    bool
}

// class identifies layers with the same layout: they have the same geometry and the format
// treats them alike.
type class struct {
	layer      Layer
	trim, drop bool
}

func (s Spec) class(layer int) class {
	f := s.Format
	return class{s.Geometry.Layers[layer], f.code == codePDTrim && inRuns(f.trim, layer), f.drops(layer)}
}

// cells groups the layers that two pipeline stages share by class, in order of their first
// layer. The spec must be resolved.
func (s Spec) cells(prefillStage, decodeStage int) []cell {
	layers := int64(len(s.Geometry.Layers))
	source := stage(layers, int64(s.PP), int64(prefillStage))
	dest := stage(layers, int64(s.PPDecode), int64(decodeStage))
	both := source.intersect(dest)
	at := map[class]int{}
	var cells []cell
	for l := both.start; l < both.end; l++ {
		if !s.moves(int(l)) {
			continue
		}
		k := s.class(int(l))
		i, ok := at[k]
		if !ok {
			i = len(cells)
			at[k] = i
			cells = append(cells, s.newCell(k, int(l), source, dest, both))
		}
		cells[i].indices = append(cells[i].indices, int(l))
	}
	return cells
}

func (s Spec) newCell(k class, first int, source, dest, both span) cell {
	c := cell{layer: k.layer, cross: s.Layout.CrossLayer, across: one}
	c.segments = s.Format.segments(k.layer, first, s.Tokens, s.Layout.blockTokens())
	if c.cross {
		c.across = slice{
			source: s.alike(k, source), sourceAt: s.alike(k, span{source.start, both.start}),
			dest: s.alike(k, dest), destAt: s.alike(k, span{dest.start, both.start}),
			n: s.alike(k, both),
		}
	}
	return c
}

// alike counts the layers of a class in a span.
func (s Spec) alike(k class, in span) (n int64) {
	for l := in.start; l < in.end; l++ {
		if s.class(int(l)) == k {
			n++
		}
	}
	return n
}

// groups returns the layers of each transfer.
func (c cell) groups() [][]int {
	if c.cross {
		return [][]int{c.indices}
	}
	groups := make([][]int, len(c.indices))
	for i := range c.indices {
		groups[i] = c.indices[i : i+1 : i+1]
	}
	return groups
}

// partners returns the prefill ranks that send data of the cell to decode rank d,
// ascending.
func (c cell) partners(s Spec, d int) []int64 {
	var ranks []int64
	if len(c.segments) > 0 {
		ranks = sources(int64(c.layer.KVHeads), int64(s.TP), int64(s.TPDecode), int64(d))
	}
	if s.State && c.layer.StateBytes > 0 {
		for p := max(0, d*s.TP/s.TPDecode-1); p < s.TP && p <= (d+1)*s.TP/s.TPDecode; p++ {
			if c.state(s, int64(p), int64(d)).n > 0 {
				ranks = append(ranks, int64(p))
			}
		}
		slices.Sort(ranks)
		ranks = slices.Compact(ranks)
	}
	return ranks
}

// state returns the bytes of a layer's state that two ranks share: each holds an equal part
// of it, split by heads or channels, treated here as a range.
func (c cell) state(s Spec, p, d int64) slice {
	size := c.layer.StateBytes
	share := func(tp, r int64) span { return span{size * r / tp, size * (r + 1) / tp} }
	return cut(share(int64(s.TP), p), share(int64(s.TPDecode), d))
}

// pools returns the pools of one of the cell's transfers, for one pair of tensor ranks.
func (c cell) pools(s Spec, p, d int) []pool {
	tp, tpDecode := int64(s.TP), int64(s.TPDecode)
	var pools []pool
	if len(c.segments) > 0 {
		h := int64(c.layer.KVHeads)
		from := sources(h, tp, tpDecode, int64(d))
		if slices.Contains(from, int64(p)) {
			heads := cut(headsOf(h, tp, int64(p)), headsOf(h, tpDecode, int64(d)))
			for _, g := range c.segments {
				pools = append(pools, c.split(s.Layout, g, heads, from[0] == int64(p))...)
			}
		}
	}
	if s.State && c.layer.StateBytes > 0 {
		if share := c.state(s, int64(p), int64(d)); share.n > 0 {
			for range c.across.n { // a range each layer: a state is never paged
				pools = append(pools, pool{blocks: 1, blockTokens: 1, parts: []part{{unit: 1, bytes: 1}}, layers: one, heads: share})
			}
		}
	}
	return pools
}

// split turns a segment into pools: one for each part, or one for all parts and layers of a
// cross-layer block. Shared parts go with the pair that moves the first head.
func (c cell) split(y Layout, g segment, heads slice, first bool) []pool {
	base := pool{blocks: g.blocks, blockTokens: g.blockTokens, layers: c.across, heads: heads}
	if !y.Paged {
		base.blocks, base.blockTokens = 1, g.tokens
	}
	var pools []pool
	for _, t := range g.parts {
		p := base
		if t.shared {
			if !first {
				continue
			}
			p.heads = one
		}
		if !y.Paged {
			p.chunk = max(1, t.size(min(ceilDiv(y.blockTokens(), t.unit)*t.unit, g.tokens), p.heads.n))
		}
		if t.ratio > 0 { // the coder's output for one destination is a stream that cannot be cut by heads
			t = part{unit: p.blockTokens, bytes: t.size(p.blockTokens, p.heads.n)}
			p.heads = one
		}
		p.parts = []part{{unit: t.unit, bytes: t.bytes}}
		if c.cross && len(pools) > 0 {
			pools[0].parts = append(pools[0].parts, p.parts[0])
			continue
		}
		pools = append(pools, p)
	}
	return pools
}
