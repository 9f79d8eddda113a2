package payload

import (
	"fmt"
	"slices"
)

// Fold returns the plan within a pool of at most pool bytes on either side: its transfers
// take turns in as many places as the pool has room for. Transfers that share a place move
// the same bytes, and only the first of them lists blocks to fill and check. A pool that
// holds the whole plan changes nothing.
//
// All transfers must have the same shape, as in a model with equal layers, and the pool
// must hold at least one.
func (p *Plan) Fold(pool int64) (*Plan, error) {
	if pool <= 0 || pool >= max(p.SourceBytes, p.DestBytes) {
		return p, nil
	}
	shapes := make([][]Piece, len(p.Transfers))
	var span int64
	for i, t := range p.Transfers {
		var s int64
		shapes[i], s = relative(t.Pieces)
		span = max(span, s)
		if i > 0 && !slices.Equal(shapes[i], shapes[0]) {
			return nil, fmt.Errorf("fold plan: transfer %d differs in shape from the first, so they cannot share memory; leave the pool out", i)
		}
	}
	places := int(pool / max(span, 1))
	if places == 0 {
		return nil, fmt.Errorf("fold plan: a pool of %d bytes does not hold one layer of %d; raise the pool", pool, span)
	}
	folded := &Plan{Bytes: p.Bytes, Descriptors: p.Descriptors}
	for i, t := range p.Transfers {
		at := int64(i%places) * span
		blocks, _ := relative(t.Blocks)
		if i >= places {
			blocks = nil
		}
		t.Pieces, t.Blocks = shifted(shapes[i], at), shifted(blocks, at)
		folded.Transfers = append(folded.Transfers, t)
	}
	size := int64(min(places, len(p.Transfers))) * span
	folded.SourceBytes, folded.DestBytes = size, size
	return folded, nil
}

// relative moves pieces to begin at offset 0 on both sides, and returns the bytes that they
// then span on the larger side.
func relative(pieces []Piece) (moved []Piece, span int64) {
	if len(pieces) == 0 {
		return nil, 0
	}
	source, dest := pieces[0].Source, pieces[0].Dest
	for _, p := range pieces {
		source, dest = min(source, p.Source), min(dest, p.Dest)
	}
	moved = make([]Piece, len(pieces))
	for i, p := range pieces {
		moved[i] = Piece{p.Source - source, p.Dest - dest, p.Length}
		span = max(span, moved[i].Source+p.Length, moved[i].Dest+p.Length)
	}
	return moved, span
}

func shifted(pieces []Piece, by int64) []Piece {
	moved := make([]Piece, len(pieces))
	for i, p := range pieces {
		moved[i] = Piece{p.Source + by, p.Dest + by, p.Length}
	}
	return moved
}
