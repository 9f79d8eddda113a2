package payload

// Attention is a group of attention layers with the same prefill cost: their width and
// window are equal.
type Attention struct {
	Layers int
	// Width is query heads times the elements of a head, the mean of K's and V's.
	Width float64
	// Window is the most tokens that one token attends to; 0 is all before it.
	Window int64
	// Chunked layers attend only to the current chunk of Window tokens.
	Chunked bool
}

// Attention groups the attention layers by cost. A layer that chooses its tokens by an
// index (DeepSeek-V3.2's sparse attention) gives two entries: the attention, to the
// number of tokens chosen, and the index, with heads that score every token and have no
// V. Layers with a fixed state have no cost that grows with the context and give no
// entry.
func (g Geometry) Attention() []Attention {
	var all []Attention
	add := func(a Attention) {
		for i := range all {
			if a.Layers = all[i].Layers; a == all[i] {
				all[i].Layers++
				return
			}
		}
		a.Layers = 1
		all = append(all, a)
	}
	for _, l := range g.Layers {
		if !l.Attention() {
			continue
		}
		k, v := l.KDim, l.VDim
		window := l.Window
		if l.Kind == Latent {
			k, v = g.HeadDim, g.ValueDim // dimensions after attention unfolds the latent
			if g.Index.Tokens > 0 {
				window = g.Index.Tokens
			}
			if l.IndexBytes > 0 {
				add(Attention{Width: float64(g.Index.Heads*g.Index.Dim) / 2})
			}
		}
		add(Attention{Width: float64(g.QueryHeads*(k+v)) / 2, Window: window, Chunked: l.Kind == Chunked})
	}
	return all
}
