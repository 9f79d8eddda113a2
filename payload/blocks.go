package payload

import "fmt"

// blockConfigs reads the searched architectures of Nemotron-NAS. Attention that is left out
// or replaced by a matrix keeps no cache.
func (c *reader) blockConfigs() ([]role, []int64) {
	blocks, ok := c.o.fields["block_configs"].([]any)
	if !ok || int64(len(blocks)) != c.count {
		c.fault("block_configs", "is no list of %d blocks, one for each layer", c.count)
		return nil, nil
	}
	roles, heads := make([]role, c.count), make([]int64, c.count)
	for i, b := range blocks {
		fields, _ := b.(map[string]any)
		block := object{fmt.Sprintf("%sblock_configs[%d].", c.o.path, i), fields}
		a, ok := block.child("attention")
		if !ok {
			c.fail(block.fault("attention", "is missing; without it the layer's KV heads cannot be derived"))
			return nil, nil
		}
		if a.flag("no_op", false) || a.flag("replace_with_linear", false) {
			roles[i] = roleNone
			continue
		}
		if a.hasAny("window_length", "mamba", "llama4") {
			c.fail(a.fault("window_length", "is set; blocks with windows or states are not known"))
			return nil, nil
		}
		heads[i] = c.blockHeads(a)
	}
	return roles, heads
}

func (c *reader) blockHeads(a object) int64 {
	if n, ok, err := a.number("num_key_value_heads", 1, maxHeads); ok || err != nil {
		c.keep(err)
		return n
	}
	group, ok, err := a.number("n_heads_in_group", 1, maxHeads)
	c.keep(err)
	switch {
	case err == nil && !ok:
		c.fail(a.fault("n_heads_in_group", "is missing; without it the layer's KV heads cannot be derived"))
	case err == nil && (c.heads == 0 || c.heads%group != 0):
		c.fail(a.fault("n_heads_in_group", "is %d; it has to divide num_attention_heads %d", group, c.heads))
	case err == nil:
		return c.heads / group
	}
	return 1
}
