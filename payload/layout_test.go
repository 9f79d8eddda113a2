package payload

import (
	"slices"
	"strings"
	"testing"
)

func TestBlockTables(t *testing.T) {
	for _, n := range []int64{1, 2, 3, 4, 5, 17, 118, 1000} {
		for _, f := range []float64{0, 0.01, 0.3, 0.5, 0.99, 1} {
			for seed := range uint64(20) {
				y := Layout{Paged: true, Fragmentation: f, Seed: seed}
				source, dest := y.tables(n)
				for _, table := range [][]int64{source, dest} {
					sorted := slices.Sorted(slices.Values(table))
					for i, slot := range sorted {
						if slot != int64(i) {
							t.Fatalf("n %d, fragmentation %v, seed %d: %v is no permutation", n, f, seed, table)
						}
					}
					if got := int64(len(mergeRuns(table, table))); got != y.breaks(n)+1 {
						t.Fatalf("n %d, fragmentation %v, seed %d: one side has %d runs, want %d", n, f, seed, got, y.breaks(n)+1)
					}
				}
				if got := int64(len(mergeRuns(source, dest))); got != y.breaks(n)+1 {
					t.Fatalf("n %d, fragmentation %v, seed %d: %d runs, want %d", n, f, seed, got, y.breaks(n)+1)
				}
				if y.breaks(n) > 1 && slices.Equal(source, dest) {
					t.Fatalf("n %d, fragmentation %v, seed %d: both sides have the table %v", n, f, seed, source)
				}
			}
		}
	}
}

func TestBlockTablesFollowTheSeed(t *testing.T) {
	tables := func(seed uint64) []int64 {
		source, _ := Layout{Paged: true, Fragmentation: 1, Seed: seed}.tables(100)
		return source
	}
	if !slices.Equal(tables(7), tables(7)) || slices.Equal(tables(7), tables(8)) {
		t.Error("a table is a function of the seed, and of nothing else")
	}
}

func TestMergeRuns(t *testing.T) {
	for _, c := range []struct{ source, dest, want []int64 }{
		{nil, nil, nil},
		{[]int64{0}, []int64{5}, []int64{1}},
		{[]int64{0, 1, 2}, []int64{7, 8, 9}, []int64{3}},
		{[]int64{0, 1, 2}, []int64{7, 9, 8}, []int64{1, 1, 1}},
		{[]int64{0, 1, 5, 6}, []int64{2, 3, 4, 5}, []int64{2, 2}},
		{[]int64{2, 1, 0}, []int64{2, 1, 0}, []int64{1, 1, 1}}, // descending ids are not adjacent
	} {
		var got []int64
		for _, r := range mergeRuns(c.source, c.dest) {
			got = append(got, r.blocks)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("mergeRuns(%v, %v) has runs of %v, want %v", c.source, c.dest, got, c.want)
		}
	}
}

func TestLayoutErrors(t *testing.T) {
	nan := 0.0
	nan /= nan
	for says, y := range map[string]Layout{
		"block tokens -1":  {BlockTokens: -1},
		"block tokens 2":   {BlockTokens: 2 << 20},
		"fragmentation -1": {Paged: true, Fragmentation: -1},
		"fragmentation 2":  {Paged: true, Fragmentation: 2},
		"fragmentation Na": {Paged: true, Fragmentation: nan},
		"cross-layer":      {CrossLayer: true},
	} {
		if err := y.Validate(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v does not say %q", y, err, says)
		}
	}
}

// Sinks and windows against a count of the tokens themselves.
func TestKeptTokens(t *testing.T) {
	for _, n := range []int64{1, 5, 16, 17, 100, 128} {
		for _, held := range []int64{1, 3, 16, 33, n} {
			for _, first := range []int64{0, 1, 7, 40, 200} {
				for _, last := range []int64{0, 1, 20, 64, 500} {
					for _, b := range []int64{1, 8, 16} {
						held := min(held, n)
						f := Format{code: codePDTrim, first: first, last: last, trim: []layerRun{{0, 0}}}
						tokens, blocks := f.kept(0, n, held, b)
						wantTokens, wantBlocks := keptByHand(n, held, first, last, b)
						if tokens != wantTokens || blocks != wantBlocks {
							t.Fatalf("n %d, held %d, first %d, last %d, blocks of %d: %d tokens in %d blocks, want %d in %d", n, held, first, last, b, tokens, blocks, wantTokens, wantBlocks)
						}
					}
				}
			}
		}
	}
}

func keptByHand(n, held, first, last, b int64) (tokens, blocks int64) {
	touched := map[int64]bool{}
	for i := n - held; i < n; i++ {
		if i < first || i >= n-last {
			tokens++
			touched[i/b] = true
		}
	}
	return tokens, int64(len(touched))
}
