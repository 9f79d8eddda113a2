package payload

// Attention is a group of attention layers with the same width and window, for the cost of
// a prefill.
type Attention struct {
	Layers int
	// Width is query heads times the elements of a head, the mean of K's and V's.
	Width float64
	// Window is the most tokens that one token attends to; 0 is all before it.
	Window int64
	// Chunked layers attend only to the current chunk of Window tokens.
	Chunked bool
}

// Attention groups the attention layers by cost. A layer with an index for sparse attention
// (DeepSeek-V3.2) makes two entries: its attention, to as many tokens as it chooses, and
// the index. The index's heads score every token and have no V. Layers with a fixed state
// are left out: their cost does not grow with the context.
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
			k, v = g.HeadDim, g.ValueDim // as attention expands the latent
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
