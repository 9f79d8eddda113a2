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
	// within says that of two other rests, one shorter and one longer, a mean with as many
	// transfers has no fewer descriptors and bytes. On a path of one regime the time of a rest
	// is the larger of two sums of its three counts, and what prefill hides of it goes by the
	// transfers: so it exposes no more than one of those two does.
	within bool
}

// NewTransfers are the transfers of each, in order; each moves at least a byte.
func NewTransfers(each []Transfer) Transfers {
	t := Transfers{rests: make([]rest, len(each))}
	var sum Transfer
	var hull []int // of the rests so far, the ones that are not within
	for k := len(each) - 1; k >= 0; k-- {
		sum.Descriptors += each[k].Descriptors
		sum.Bytes += each[k].Bytes
		t.rests[k].Transfer = sum
		for len(hull) > 1 && t.spans(hull[len(hull)-2], hull[len(hull)-1], k) {
			t.rests[hull[len(hull)-1]].within = true
			hull = hull[:len(hull)-1]
		}
		hull = append(hull, k)
	}
	return t
}

// spans says whether rest k is within the rests i and j, i the shortest and j the longest.
func (t Transfers) spans(i, k, j int) bool {
	share := float64(i-k) / float64(i-j)
	reaches := func(at func(rest) float64) bool {
		from, to := at(t.rests[i]), at(t.rests[j])
		return at(t.rests[k])-from <= share*(to-from)
	}
	return reaches(func(r rest) float64 { return float64(r.Descriptors) }) && reaches(func(r rest) float64 { return float64(r.Bytes) })
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
