package payload

import (
	"fmt"
	"slices"
)

// Piece is one contiguous byte range on both sides: offsets into the source's and
// the destination's memory image, and a length, all in bytes.
type Piece struct{ Source, Dest, Length int64 }

// Transfer is the set of bytes that become ready together: one layer of the request, or
// with cross-layer blocks all layers of one kind.
type Transfer struct {
	Layer  int     // the layer that completes the transfer: the last of Layers
	Layers []int   // the layers in the transfer; one unless blocks are cross-layer
	Ready  int     // count of moving layers that prefill has computed by then
	Pieces []Piece // descriptors, in logical order, ranges adjacent on both sides merged
	Blocks []Piece // ranges with a stamp each, in the same order; together exactly the bytes of Pieces
	Bytes  int64
}

// Plan is the transfers of one rank pair. Each side's image holds the layers that move,
// with all heads that the rank holds of them, and nothing else.
type Plan struct {
	SourceBytes int64 // size of the source's image
	DestBytes   int64 // size of the destination's image
	Transfers   []Transfer
	Bytes       int64 // moved by all transfers; at most the size of either image
	Descriptors int   // pieces of all transfers
}

// maxPieces bounds the list that Pair builds, at 24 bytes a piece.
const maxPieces = 1 << 26

// Pair lists the byte ranges on both sides that prefillRank sends to decodeRank. Ranks
// count tensor ranks within pipeline stages: rank = stage*TP + tensor rank. For a pair
// that moves nothing it returns a [NothingError], which names some that do.
func (s Spec) Pair(prefillRank, decodeRank int) (*Plan, error) {
	pieces, blocks, err := s.Ranges(prefillRank, decodeRank)
	if err != nil {
		return nil, err
	}
	if pieces+blocks > maxPieces {
		return nil, fmt.Errorf("plan rank pair %d:%d: %d byte ranges pass the limit of %d; lower the context, or raise the tokens of a block", prefillRank, decodeRank, pieces+blocks, maxPieces)
	}
	r := s.resolved()
	return r.build(r.cells(prefillRank/r.TP, decodeRank/r.TPDecode), prefillRank%r.TP, decodeRank%r.TPDecode), nil
}

// Ranges counts, in closed form, the entries of the lists that Pair makes: pieces and
// blocks of all transfers. It returns the same errors as Pair.
func (s Spec) Ranges(prefillRank, decodeRank int) (pieces, blocks int64, err error) {
	if err := s.validatePair(prefillRank, decodeRank); err != nil {
		return 0, 0, err
	}
	r := s.resolved()
	for _, c := range r.cells(prefillRank/r.TP, decodeRank/r.TPDecode) {
		groups := int64(len(c.groups()))
		for _, p := range c.pools(r, prefillRank%r.TP, decodeRank%r.TPDecode) {
			pieces += p.descriptors(r.Layout) * groups
			blocks += p.stamps(r.Layout) * groups
		}
	}
	if pieces+blocks == 0 {
		return 0, 0, r.nothing(prefillRank, decodeRank)
	}
	return pieces, blocks, nil
}

// validatePair is Validate plus a check that the two ranks exist.
func (s Spec) validatePair(prefillRank, decodeRank int) error {
	if err := s.Validate(); err != nil {
		return err
	}
	r := s.resolved()
	for _, side := range []struct {
		name    string
		rank, n int
	}{{"prefill", prefillRank, r.TP * r.PP}, {"decode", decodeRank, r.TPDecode * r.PPDecode}} {
		if side.rank < 0 || side.rank >= side.n {
			return fmt.Errorf("plan rank pair %d:%d: there are %d %s ranks; choose 0 to %d", prefillRank, decodeRank, side.n, side.name, side.n-1)
		}
	}
	return nil
}

// build lists the transfers of one pair of tensor ranks between two stages.
func (s Spec) build(cells []cell, p, d int) *Plan {
	plan, tables := &Plan{}, tableSet{}
	var moving []int // layers
	for _, g := range inOrder(cells) {
		pools := cells[g.cell].pools(s, p, d)
		if len(pools) == 0 {
			continue
		}
		var pieces, blocks int64
		for _, q := range pools {
			pieces += q.descriptors(s.Layout)
			blocks += q.stamps(s.Layout)
		}
		t := Transfer{
			Layer: g.last(), Layers: g.layers,
			Pieces: make([]Piece, 0, pieces), Blocks: make([]Piece, 0, blocks),
		}
		for _, q := range pools {
			q.list(&t, s.Layout, tables, plan.SourceBytes, plan.DestBytes)
			plan.SourceBytes += q.blocks * q.sourceBlock()
			plan.DestBytes += q.blocks * q.destBlock()
		}
		plan.Transfers = append(plan.Transfers, t)
		moving = append(moving, g.layers...)
		plan.Bytes += t.Bytes
		plan.Descriptors += len(t.Pieces)
	}
	slices.Sort(moving)
	for i := range plan.Transfers {
		plan.Transfers[i].Ready = readyBy(moving, plan.Transfers[i].Layer)
	}
	return plan
}
