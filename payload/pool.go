package payload

// pool is the part that one rank pair moves of a set of blocks that have one size and share
// a block table: one part of one layer, or with cross-layer blocks all parts that the
// layers of one kind store alike. A contiguous range is a pool of one block.
//
// A token-major block nests, from the outside in, layers, parts, units, heads. A head-major
// block nests heads, layers, parts, units (vLLM's cross-layer NHD and HND orders). A rank
// pair moves a slice of the layers and a slice of the heads.
type pool struct {
	blocks      int64
	blockTokens int64
	parts       []part // neither shared nor with ratio: heads and bytes account for both
	layers      slice
	heads       slice
	chunk       int64 // contiguous: bytes a stamp covers; else 0
}

// layerBytes returns the bytes of one layer and one head in a block.
func (p pool) layerBytes() int64 {
	var n int64
	for _, t := range p.parts {
		n += p.blockTokens / t.unit * t.bytes
	}
	return n
}

func (p pool) sourceBlock() int64 { return p.layers.source * p.heads.source * p.layerBytes() }
func (p pool) destBlock() int64   { return p.layers.dest * p.heads.dest * p.layerBytes() }

// bytes returns the bytes that the pair moves.
func (p pool) bytes() int64 { return p.blocks * p.layers.n * p.heads.n * p.layerBytes() }

// whole reports whether both sides' blocks hold exactly the moved data, so that adjacent
// blocks merge.
func (p pool) whole() bool { return p.heads.whole() && p.layers.whole() }

// innerPieces returns the number of ranges that one block splits into. If a dimension is
// cut on either side, only the data inside it is contiguous on both.
func (p pool) innerPieces(y Layout) int64 {
	switch {
	case p.whole(), y.HeadMajor && p.layers.whole(), !y.HeadMajor && p.heads.whole():
		return 1
	case y.HeadMajor:
		return p.heads.n
	}
	var units int64
	for _, t := range p.parts {
		units += p.blockTokens / t.unit
	}
	return p.layers.n * units
}

// descriptors counts the pieces without listing them.
func (p pool) descriptors(y Layout) int64 {
	if p.whole() {
		return y.breaks(p.blocks) + 1
	}
	return p.blocks * p.innerPieces(y)
}

// stamps counts the blocks of a transfer's list.
func (p pool) stamps(y Layout) int64 {
	if inner := p.innerPieces(y); inner > 1 || p.chunk == 0 {
		return p.blocks * inner
	}
	return ceilDiv(p.bytes(), p.chunk)
}

// inner lists the pieces of one block, offsets from the block's start.
func (p pool) inner(y Layout) []Piece {
	size := p.layerBytes()
	pieces := make([]Piece, 0, p.innerPieces(y))
	h, l := p.heads, p.layers
	switch {
	case y.HeadMajor && !p.whole():
		for i := range h.n {
			pieces = join(pieces, Piece{
				Source: ((h.sourceAt+i)*l.source + l.sourceAt) * size,
				Dest:   ((h.destAt+i)*l.dest + l.destAt) * size,
				Length: l.n * size,
			})
		}
	case h.whole():
		pieces = append(pieces, Piece{l.sourceAt * h.n * size, l.destAt * h.n * size, l.n * h.n * size})
	default:
		for i := range l.n {
			source, dest := (l.sourceAt+i)*h.source*size, (l.destAt+i)*h.dest*size
			for _, t := range p.parts {
				for range p.blockTokens / t.unit {
					pieces = append(pieces, Piece{source + h.sourceAt*t.bytes, dest + h.destAt*t.bytes, h.n * t.bytes})
					source += h.source * t.bytes
					dest += h.dest * t.bytes
				}
			}
		}
	}
	return pieces
}

// join appends a piece, or lengthens the last one if both sides are adjacent.
func join(pieces []Piece, p Piece) []Piece {
	if n := len(pieces); n > 0 {
		last := &pieces[n-1]
		if last.Source+last.Length == p.Source && last.Dest+last.Length == p.Dest {
			last.Length += p.Length
			return pieces
		}
	}
	return append(pieces, p)
}

// list appends the pool's pieces and blocks to the transfer. The pool starts at the given
// offsets of both images.
func (p pool) list(t *Transfer, y Layout, tables tableSet, source, dest int64) {
	from, to := tables.of(y, p.blocks)
	sourceBlock, destBlock := p.sourceBlock(), p.destBlock()
	inner := p.inner(y)
	if p.whole() {
		for _, r := range mergeRuns(from, to) {
			t.Pieces = append(t.Pieces, Piece{source + r.source*sourceBlock, dest + r.dest*destBlock, r.blocks * sourceBlock})
		}
	}
	for i := range from {
		for _, in := range inner {
			in.Source += source + from[i]*sourceBlock
			in.Dest += dest + to[i]*destBlock
			if !p.whole() {
				t.Pieces = append(t.Pieces, in)
			}
			t.Blocks = p.stamp(t.Blocks, in, len(inner) == 1)
		}
	}
	t.Bytes += p.bytes()
}

// stamp appends the ranges that carry a stamp: a block's piece, or the chunks of a
// contiguous range.
func (p pool) stamp(blocks []Piece, in Piece, chunked bool) []Piece {
	if !chunked || p.chunk == 0 {
		return append(blocks, in)
	}
	for in.Length > p.chunk {
		blocks = append(blocks, Piece{in.Source, in.Dest, p.chunk})
		in.Source += p.chunk
		in.Dest += p.chunk
		in.Length -= p.chunk
	}
	return append(blocks, in)
}
