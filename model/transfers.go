package model

// Transfer is what one transfer of a request moves.
type Transfer struct {
	Descriptors int
	Bytes       int64
}

// Transfers are those of one request, in the order in which they become ready: one a
// layer, or fewer where layers move together. The zero value moves nothing.
type Transfers struct {
	rests []rest
}

// rest adds up a transfer and those after it: what is still to be moved when the
// transfer becomes ready on an idle path.
type rest struct {
	Transfer
	// within says that the transfer is like the one before it and not the last. The time of
	// a rest is convex along transfers alike, but for the knee of a path, and what prefill
	// hides of it is straight, so that it exposes no more than one at either end of them.
	within bool
}

// NewTransfers are the transfers of each, in order; each moves at least a byte.
func NewTransfers(each []Transfer) Transfers {
	t := Transfers{rests: make([]rest, len(each))}
	var sum Transfer
	for k := len(each) - 1; k >= 0; k-- {
		sum.Descriptors += each[k].Descriptors
		sum.Bytes += each[k].Bytes
		t.rests[k] = rest{sum, k > 0 && k < len(each)-1 && each[k] == each[k-1]}
	}
	return t
}

// EqualTransfers are count transfers among which descriptors and bytes are spread
// evenly; the first ones take what does not divide.
func EqualTransfers(count, descriptors int, bytes int64) Transfers {
	each := make([]Transfer, max(0, count))
	for k := range each {
		each[k] = Transfer{descriptors / count, bytes / int64(count)}
		if k < descriptors%count {
			each[k].Descriptors++
		}
		if int64(k) < bytes%int64(count) {
			each[k].Bytes++
		}
	}
	return NewTransfers(each)
}

// Count is the number of transfers.
func (t Transfers) Count() int { return len(t.rests) }

// Bytes is what all transfers move.
func (t Transfers) Bytes() int64 { return t.whole().Bytes }

// Descriptors is the number of descriptors of all transfers.
func (t Transfers) Descriptors() int { return t.whole().Descriptors }

// Totals are the three figures that make up a batch, as [Cost.Seconds] takes them.
func (t Transfers) Totals() (transfers, descriptors int, bytes int64) {
	return t.Count(), t.Descriptors(), t.Bytes()
}

func (t Transfers) whole() Transfer {
	if len(t.rests) == 0 {
		return Transfer{}
	}
	return t.rests[0].Transfer
}

// after is how many transfers follow transfer k.
func (t Transfers) after(k int) int { return len(t.rests) - 1 - k }

// last is the last transfer; there must be one.
func (t Transfers) last() Transfer { return t.rests[len(t.rests)-1].Transfer }
