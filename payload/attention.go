package payload

// Attention is the attention of like layers, as the cost of a prefill sees it: they are
// as wide, and their tokens attend as far back.
type Attention struct {
	Layers int
	// Width is query heads times the elements of a head, the mean of K's and V's.
	Width float64
	// Window is how many tokens one token attends to at most; 0 is all before it.
	Window int64
	// Chunked layers attend to the current chunk of Window tokens alone.
	Chunked bool
}

// Attention groups the attention layers by what they cost. A layer that chooses the
// tokens it attends to by an index (DeepSeek-V3.2's sparse attention) is two
// entries: its attention, to as many tokens as it chooses, and the index, whose heads score
// every token and have no V. Layers with a fixed state cost nothing that grows with the
// context, and are not there.
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
			k, v = g.HeadDim, g.ValueDim // as attention unfolds the latent
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
