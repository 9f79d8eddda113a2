package bench

import (
	"kvbench/model"
	"kvbench/payload"
	"kvbench/results"
)

// recorded returns a plan's transfers in the record's form.
func recorded(plan *payload.Plan) (list []results.Transfers) {
	made := 0 // layers so far
	for _, t := range plan.Transfers {
		one := results.Transfers{Count: 1, Bytes: t.Bytes, Descriptors: len(t.Pieces)}
		if more := t.Ready - made; more > 1 {
			one.Layers = more
		}
		made = t.Ready
		if n := len(list); n > 0 && list[n-1].Bytes == one.Bytes && list[n-1].Descriptors == one.Descriptors && list[n-1].Layers == one.Layers {
			list[n-1].Count++
			continue
		}
		list = append(list, one)
	}
	return list
}

// transfersOf returns the transfers of a cell's request. An older record lacks them: they
// are then taken to be equal, and the second result is false if there are several.
func transfersOf(c *results.Cell) (t model.Transfers, known bool) {
	if len(c.Transfers) == 0 {
		return model.EqualTransfers(c.Layers, c.Descriptors, c.Bytes), c.Layers == 1
	}
	each := make([]model.Transfer, 0, c.Layers)
	for _, r := range c.Transfers {
		for range r.Count {
			each = append(each, model.Transfer{Descriptors: r.Descriptors, Bytes: r.Bytes, Layers: r.Layers})
		}
	}
	return model.NewTransfers(each), true
}

// runsOf returns a cell's transfers as recorded, or equal ones for an older record.
func runsOf(c *results.Cell) []results.Transfers {
	if len(c.Transfers) > 0 {
		return c.Transfers
	}
	return []results.Transfers{{Count: c.Layers, Bytes: c.Bytes / int64(c.Layers), Descriptors: c.Descriptors / c.Layers}}
}

// mostTransfers bounds the transfers of a record: no model has as many layers.
const mostTransfers = 1 << 16

// addUp reports whether a cell's transfers, if recorded, add up to its totals.
func addUp(c *results.Cell) bool {
	if len(c.Transfers) == 0 {
		return true
	}
	count, descriptors, bytes := c.Layers, c.Descriptors, c.Bytes // remaining
	for _, r := range c.Transfers {
		if r.Count < 1 || r.Bytes < 1 || r.Descriptors < 1 || r.Layers < 0 || r.Layers > mostTransfers ||
			r.Count > count || r.Descriptors > descriptors/r.Count || r.Bytes > bytes/int64(r.Count) {
			return false
		}
		count -= r.Count
		descriptors -= r.Count * r.Descriptors
		bytes -= int64(r.Count) * r.Bytes
	}
	return count == 0 && descriptors == 0 && bytes == 0
}
