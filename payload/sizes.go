package payload

import (
	"cmp"
	"fmt"
	"slices"
)

// TransferSize is the size of one transfer of a rank pair.
type TransferSize struct {
	Layer, Ready int // as in [Transfer]
	Descriptors  int64
	Bytes        int64
}

// Sizes returns the sizes of the transfers in the plan of [Spec.Pair], in its order, in
// closed form: the running time does not grow with the tokens, nor with the other rank
// pairs. It returns the same errors as Pair, including [NothingError].
func (s Spec) Sizes(prefillRank, decodeRank int) ([]TransferSize, error) {
	if err := s.validatePair(prefillRank, decodeRank); err != nil {
		return nil, err
	}
	r := s.resolved()
	cells := r.cells(prefillRank/r.TP, decodeRank/r.TPDecode)
	each := make([]TransferSize, len(cells)) // all transfers of a cell are alike
	for i, c := range cells {
		for _, p := range c.pools(r, prefillRank%r.TP, decodeRank%r.TPDecode) {
			each[i].Bytes += p.bytes()
			each[i].Descriptors += p.descriptors(r.Layout)
		}
	}
	var sizes []TransferSize
	var moving []int // layers
	for _, g := range inOrder(cells) {
		if size := each[g.cell]; size.Descriptors > 0 {
			size.Layer = g.last()
			sizes = append(sizes, size)
			moving = append(moving, g.layers...)
		}
	}
	if len(sizes) == 0 {
		return nil, r.nothing(prefillRank, decodeRank)
	}
	slices.Sort(moving)
	for i := range sizes {
		sizes[i].Ready = readyBy(moving, sizes[i].Layer)
	}
	return sizes, nil
}

// readyBy returns the number of moving layers that prefill has computed when it
// finishes the layer last. moving is in order and includes last.
func readyBy(moving []int, last int) int {
	at, _ := slices.BinarySearch(moving, last)
	return at + 1
}

// group is the layers of a cell that move together.
type group struct {
	cell   int // index among the cells
	layers []int
}

func (g group) last() int { return g.layers[len(g.layers)-1] }

// inOrder lists the groups of cells in order of completion: by their last layer.
func inOrder(cells []cell) []group {
	var groups []group
	for i, c := range cells {
		for _, layers := range c.groups() {
			groups = append(groups, group{i, layers})
		}
	}
	slices.SortFunc(groups, func(a, b group) int { return cmp.Compare(a.last(), b.last()) })
	return groups
}

// NothingError is returned for a rank pair that moves nothing.
type NothingError struct {
	Prefill, Decode int
	Pairs           []RankPair // the pairs that move bytes; empty if the whole request moves nothing
	Why             string     // reason for empty Pairs, with advice
}

func (e *NothingError) Error() string {
	if len(e.Pairs) == 0 {
		return "the request moves nothing: " + e.Why
	}
	var some string
	for i, p := range e.Pairs[:min(3, len(e.Pairs))] {
		if i > 0 {
			some += ", "
		}
		some += fmt.Sprintf("%d:%d", p.Prefill, p.Decode)
	}
	return fmt.Sprintf("rank pair %d:%d moves nothing; choose one that does, such as %s", e.Prefill, e.Decode, some)
}

// nothing returns the error of a rank pair of a resolved spec that moves nothing.
func (s Spec) nothing(prefillRank, decodeRank int) *NothingError {
	e := &NothingError{Prefill: prefillRank, Decode: decodeRank, Pairs: s.pairs()}
	if len(e.Pairs) > 0 {
		return e
	}
	switch g := s.Geometry; {
	case g.AttentionLayers() > 0 && s.Layers != nil:
		e.Why = "no layer among those named keeps KV that this format moves; name others"
	case g.AttentionLayers() > 0:
		e.Why = fmt.Sprintf("the format %s drops every layer that keeps KV; choose another", s.Format)
	case g.StateBytes() > 0:
		e.Why = fmt.Sprintf("the model has no KV to move, only a state of %d bytes a request, whatever its length; choose a model with attention layers", g.StateBytes())
	default:
		e.Why = "the model has no KV to move; choose one with attention layers"
	}
	return e
}
