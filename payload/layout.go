package payload

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Layout is the arrangement of a request's KV in memory on both sides. The zero value
// is contiguous: K and V of each layer are a range each.
type Layout struct {
	Paged         bool    `json:"paged"`         // in blocks, through a block table
	BlockTokens   int     `json:"block_tokens"`  // tokens a block; 0 is 16. Contiguous: tokens a stamp
	HeadMajor     bool    `json:"head_major"`    // HND: heads outside tokens. Else NHD: tokens outside heads
	CrossLayer    bool    `json:"cross_layer"`   // a block holds all layers of one kind; paged only
	Fragmentation float64 `json:"fragmentation"` // 0..1: share of blocks that do not follow their predecessor; paged only
	Seed          uint64  `json:"seed"`          // of the block tables
}

const (
	defaultBlockTokens = 16
	maxBlockTokens     = 1 << 20
)

func (y Layout) blockTokens() int64 {
	if y.BlockTokens == 0 {
		return defaultBlockTokens
	}
	return int64(y.BlockTokens)
}

// Validate returns an error that names the invalid field.
func (y Layout) Validate() error {
	if y.BlockTokens < 0 || y.BlockTokens > maxBlockTokens {
		return fmt.Errorf("check layout: block tokens %d is outside 1..%d; 16 is usual", y.BlockTokens, maxBlockTokens)
	}
	if !(y.Fragmentation >= 0 && y.Fragmentation <= 1) {
		return fmt.Errorf("check layout: fragmentation %v is outside 0..1; give the share of blocks that are not adjacent", y.Fragmentation)
	}
	if y.CrossLayer && !y.Paged {
		return fmt.Errorf("check layout: cross-layer blocks need blocks; choose the paged layout")
	}
	return nil
}

// breaks returns the number of n blocks that do not follow their predecessor.
func (y Layout) breaks(n int64) int64 {
	if !y.Paged || n < 2 {
		return 0
	}
	return int64(math.Round(y.Fragmentation * float64(n-1)))
}

// tables returns the block tables of both sides: the slot of each of n logical blocks,
// a permutation of 0..n-1. Both tables break at the same blocks, so a run of blocks
// that is adjacent on one side is adjacent on the other. With three or more runs their
// order differs.
func (y Layout) tables(n int64) (source, dest []int64) {
	r := rand.New(rand.NewPCG(y.Seed, uint64(n)))
	starts := y.runStarts(r, n)
	runs := len(starts)
	a := scatter(r, runs)
	b := scatter(r, runs)
	for runs > 2 && slices.Equal(a, b) {
		b = scatter(r, runs)
	}
	return place(starts, a, n), place(starts, b, n)
}

// tableSet holds both sides' block tables by length: layers with equal block counts
// share a table, as in an engine.
type tableSet map[int64][2][]int64

func (t tableSet) of(y Layout, n int64) (source, dest []int64) {
	both, ok := t[n]
	if !ok {
		both[0], both[1] = y.tables(n)
		t[n] = both
	}
	return both[0], both[1]
}

// runStarts draws the first blocks of the runs of adjacent blocks, ascending, 0 first.
func (y Layout) runStarts(r *rand.Rand, n int64) []int64 {
	left := y.breaks(n)
	starts := make([]int64, 1, left+1)
	for i := int64(1); i < n && left > 0; i++ {
		if r.Int64N(n-i) < left {
			starts = append(starts, i)
			left--
		}
	}
	return starts
}

// scatter draws an order of runs without a run directly after its predecessor, so that
// no two merge by accident. About one shuffle in e has that property.
func scatter(r *rand.Rand, runs int) []int {
	for range 64 {
		order := r.Perm(runs)
		if !slices.ContainsFunc(order[1:], follows(order)) {
			return order
		}
	}
	order := make([]int, runs)
	for i := range order {
		order[i] = runs - 1 - i
	}
	return order
}

// follows returns a test for an element that is its predecessor plus one. It must be
// called on each of order's elements but the first, in turn.
func follows(order []int) func(int) bool {
	before := order[0]
	return func(run int) bool {
		adjacent := run == before+1
		before = run
		return adjacent
	}
}

// place puts the runs in the given order and returns each block's slot.
func place(starts []int64, order []int, n int64) []int64 {
	table := make([]int64, n)
	slot := int64(0)
	for _, run := range order {
		end := n
		if run+1 < len(starts) {
			end = starts[run+1]
		}
		for block := starts[run]; block < end; block++ {
			table[block] = slot
			slot++
		}
	}
	return table
}

// run is a range of logical blocks with adjacent slots on both sides.
type run struct {
	source, dest int64 // slots of its first block
	blocks       int64
}

// mergeRuns joins blocks that follow each other in both tables, in logical order, like
// an engine that walks its block table.
func mergeRuns(source, dest []int64) []run {
	var runs []run
	for i := range source {
		if n := len(runs); n > 0 {
			last := &runs[n-1]
			if source[i] == last.source+last.blocks && dest[i] == last.dest+last.blocks {
				last.blocks++
				continue
			}
		}
		runs = append(runs, run{source[i], dest[i], 1})
	}
	return runs
}
