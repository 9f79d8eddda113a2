package payload

import "testing"

// Every decode rank receives every head that it holds exactly once, from a rank
// that holds it, and copies are drawn on evenly.
func TestSources(t *testing.T) {
	for _, heads := range []int64{1, 2, 4, 8, 10} {
		for _, tp := range []int64{1, 2, 4, 8, 10, 16, 20} {
			for _, tpDecode := range []int64{1, 2, 4, 8, 10, 16, 20} {
				if !divides(heads, tp) || !divides(heads, tpDecode) {
					continue
				}
				load := map[int64]int64{}
				for d := range tpDecode {
					checkSources(t, heads, tp, tpDecode, d, load)
				}
				most, least := int64(0), int64(1<<60)
				for p := range tp {
					most, least = max(most, load[p]), min(least, load[p])
				}
				if tpDecode >= tp && most > least+1 {
					t.Errorf("%d heads, tp %d to %d: a prefill rank sends %d heads, another %d", heads, tp, tpDecode, most, least)
				}
			}
		}
	}
}

func divides(heads, tp int64) bool { return heads%tp == 0 || tp%heads == 0 }

func checkSources(t *testing.T, heads, tp, tpDecode, d int64, load map[int64]int64) {
	t.Helper()
	got := map[int64]int{}
	before := int64(-1)
	for _, p := range sources(heads, tp, tpDecode, d) {
		if p <= before || p >= tp {
			t.Fatalf("%d heads, tp %d to %d: decode rank %d pulls from %v", heads, tp, tpDecode, d, sources(heads, tp, tpDecode, d))
		}
		before = p
		both := headsOf(heads, tp, p).intersect(headsOf(heads, tpDecode, d))
		for h := both.start; h < both.end; h++ {
			got[h]++
			load[p]++
		}
	}
	want := headsOf(heads, tpDecode, d)
	for h := range heads {
		times := 0
		if want.start <= h && h < want.end {
			times = 1
		}
		if got[h] != times {
			t.Fatalf("%d heads, tp %d to %d: decode rank %d receives head %d %d times, want %d", heads, tp, tpDecode, d, h, got[h], times)
		}
	}
}

func TestStages(t *testing.T) {
	for _, c := range []struct {
		layers, pp int64
		want       []int64
	}{
		{80, 1, []int64{80}},
		{80, 4, []int64{20, 20, 20, 20}},
		{61, 4, []int64{15, 15, 16, 15}}, // what is left over goes before the last stage
		{63, 4, []int64{16, 16, 16, 15}},
		{3, 3, []int64{1, 1, 1}},
	} {
		end := int64(0)
		for s := range c.pp {
			got := stage(c.layers, c.pp, s)
			if got.start != end || got.len() != c.want[s] {
				t.Errorf("%d layers in %d stages: stage %d is %+v, want %d layers from %d", c.layers, c.pp, s, got, c.want[s], end)
			}
			end = got.end
		}
	}
}
