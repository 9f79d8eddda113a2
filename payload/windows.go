package payload

import (
	"slices"
	"strings"
)

var windowNames = []string{"sliding_window", "sliding_window_size", "attention_window_size", "window_size"}

// unmapped interprets sliding_window if no list maps it to layers.
func (c *reader) unmapped() []role {
	full := c.where(func(int64) bool { return true }, roleFull, roleFull)
	if p := c.o.text("sliding_window_pattern"); p != "" && c.o.hasAny(windowNames...) { // EXAONE 4: LLLG
		if strings.Trim(p, "LG") != "" {
			c.fault("sliding_window_pattern", "is %.40q; it has to be a number, or L for local and G for global layers", p)
		}
		return c.where(func(i int64) bool { return p[int(i)%len(p)] == 'G' }, roleFull, roleWindow)
	}
	if c.windowOff() {
		return full
	}
	if every := c.every(); every > 0 {
		return c.where(func(i int64) bool { return (i+1)%every == 0 }, roleFull, roleWindow)
	}
	if !c.o.hasAny(windowNames...) && c.family.defaults["sliding_window"] == 0 {
		return full
	}
	switch c.family.windows {
	case windowAll:
		return c.where(func(int64) bool { return true }, roleWindow, roleWindow)
	case windowOptIn:
		from := c.need(0, maxLayers, "max_window_layers")
		return c.where(func(i int64) bool { return i >= from }, roleWindow, roleFull)
	case windowNever:
		return full
	}
	c.fault("layer_types", "is missing: a sliding window is set, and nothing says which layers have it")
	return full
}

// windowOff reports whether the config or its class rules windows out.
func (c *reader) windowOff() bool {
	switch c.family.windows {
	case windowNever:
		return true
	case windowOptIn:
		return !c.o.flag("use_sliding_window", false)
	}
	return c.null("sliding_window") || !c.o.flag("use_sliding_window", true)
}

// every returns the distance of full layers among windowed ones; 0 if neither the config
// nor its class has that rule.
func (c *reader) every() int64 {
	if _, letters := c.o.fields["sliding_window_pattern"].(string); letters {
		return 0
	}
	if n, ok := c.number(1, maxLayers, "sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers"); ok {
		return n
	}
	if c.family.every > 0 {
		c.note("no layer_types in the config: one layer in %d is full and the others are windowed, as in the class %s", c.family.every, c.model)
	}
	return c.family.every
}

// windows returns the window and chunk sizes that the roles need; 0 if no role needs one.
func (c *reader) windows(roles []role) (window, chunk int64) {
	if slices.Contains(roles, roleWindow) {
		if window = c.need(1, maxTokens, windowNames...); window == 0 {
			window = 1 // c.err is set
		}
	}
	if slices.Contains(roles, roleChunk) {
		chunk = c.need(1, maxTokens, "attention_chunk_size")
	}
	return window, chunk
}
