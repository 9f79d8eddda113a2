package payload

import (
	"cmp"
	"fmt"
	"slices"
)

// Piece is one contiguous byte range on both sides: offsets into the source's and
// the destination's memory image, and a length, all in bytes.
type Piece struct{ Source, Dest, Length int64 }

// Transfer is what becomes ready together: one layer of the request, or with
// cross-layer blocks all layers of one kind.
type Transfer struct {
	Layer  int     // the layer after which it may leave: the last of Layers
	Layers []int   // the layers in it; one unless blocks are cross-layer
	Pieces []Piece // descriptors, in logical order, ranges adjacent on both sides merged
	Blocks []Piece // what a stamp is written to, in the same order; together exactly the bytes of Pieces
	Bytes  int64
}

// Plan is what one rank pair moves. Each side's image holds the layers that move,
// with all heads that its rank holds of them, and nothing else.
type Plan struct {
	SourceBytes int64 // size of the source's image
	DestBytes   int64 // size of the destination's image
	Transfers   []Transfer
	Bytes       int64 // moved; at most the size of either image
	Descriptors int   // pieces of all transfers
}

// maxPieces bounds the list that Pair builds, at 24 bytes a piece.
const maxPieces = 1 << 26

// Pair lists what prefillRank sends to decodeRank: the byte ranges on both sides.
// Ranks count tensor ranks within pipeline stages: rank = stage*TP + tensor rank.
// A pair that moves nothing is an error that names some that do.
func (s Spec) Pair(prefillRank, decodeRank int) (*Plan, error) {
	pieces, blocks, err := s.Ranges(prefillRank, decodeRank)
	if err != nil {
		return nil, err
	}
	if pieces+blocks > maxPieces {
		return nil, pairError(prefillRank, decodeRank, "%d byte ranges pass the limit of %d; lower the context, or raise the tokens of a block", pieces+blocks, maxPieces)
	}
	r := s.resolved()
	return r.build(r.cells(prefillRank/r.TP, decodeRank/r.TPDecode), prefillRank%r.TP, decodeRank%r.TPDecode), nil
}

// Ranges counts, in closed form, the entries of the lists that Pair makes: pieces and
// blocks of all transfers. Its errors are Pair's.
func (s Spec) Ranges(prefillRank, decodeRank int) (pieces, blocks int64, err error) {
	if err := s.Validate(); err != nil {
		return 0, 0, err
	}
	r := s.resolved()
	if n := r.TP * r.PP; prefillRank < 0 || prefillRank >= n {
		return 0, 0, pairError(prefillRank, decodeRank, "there are %d prefill ranks; choose 0 to %d", n, n-1)
	}
	if n := r.TPDecode * r.PPDecode; decodeRank < 0 || decodeRank >= n {
		return 0, 0, pairError(prefillRank, decodeRank, "there are %d decode ranks; choose 0 to %d", n, n-1)
	}
	for _, c := range r.cells(prefillRank/r.TP, decodeRank/r.TPDecode) {
		groups := int64(len(c.groups()))
		for _, p := range c.pools(r, prefillRank%r.TP, decodeRank%r.TPDecode) {
			pieces += p.descriptors(r.Layout) * groups
			blocks += p.stamps(r.Layout) * groups
		}
	}
	if pieces+blocks == 0 {
		return 0, 0, pairError(prefillRank, decodeRank, "it moves nothing; choose one that does, such as %s", somePairs(r.pairs()))
	}
	return pieces, blocks, nil
}

func pairError(prefillRank, decodeRank int, format string, args ...any) error {
	return fmt.Errorf("plan rank pair %d:%d: "+format, append([]any{prefillRank, decodeRank}, args...)...)
}

// build lists the transfers of one pair of tensor ranks between two stages.
func (s Spec) build(cells []cell, p, d int) *Plan {
	type group struct {
		cell   cell
		layers []int
	}
	var groups []group
	for _, c := range cells {
		for _, layers := range c.groups() {
			groups = append(groups, group{c, layers})
		}
	}
	slices.SortFunc(groups, func(a, b group) int {
		return cmp.Compare(a.layers[len(a.layers)-1], b.layers[len(b.layers)-1])
	})
	plan, tables := &Plan{}, tableSet{}
	for _, g := range groups {
		pools := g.cell.pools(s, p, d)
		if len(pools) == 0 {
			continue
		}
		var pieces, blocks int64
		for _, q := range pools {
			pieces += q.descriptors(s.Layout)
			blocks += q.stamps(s.Layout)
		}
		t := Transfer{
			Layer: g.layers[len(g.layers)-1], Layers: g.layers,
			Pieces: make([]Piece, 0, pieces), Blocks: make([]Piece, 0, blocks),
		}
		for _, q := range pools {
			q.list(&t, s.Layout, tables, plan.SourceBytes, plan.DestBytes)
			plan.SourceBytes += q.blocks * q.sourceBlock()
			plan.DestBytes += q.blocks * q.destBlock()
		}
		plan.Transfers = append(plan.Transfers, t)
		plan.Bytes += t.Bytes
		plan.Descriptors += len(t.Pieces)
	}
	return plan
}

func somePairs(pairs []RankPair) string {
	var s string
	for i, p := range pairs {
		if i == 3 {
			break
		}
		if i > 0 {
			s += ", "
		}
		s += fmt.Sprintf("%d:%d", p.Prefill, p.Decode)
	}
	if s == "" {
		return "another model: this one has no bytes to move"
	}
	return s
}
