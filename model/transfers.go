package model

// Transfer is the size of one transfer of a request.
type Transfer struct {
	Descriptors int
	Bytes       int64
	// Layers is the number of layers that prefill makes between the previous transfer being
	// ready and this one: more than one if layers move together. 0 is 1.
	Layers int
}

// Transfers are the transfers of one request, in the order of becoming ready: one a layer,
// or fewer if layers move together. The zero value moves nothing.
type Transfers struct {
	rests []rest
}

// rest is the sum of a transfer and those after it: the work left when the transfer becomes
// ready on an idle path.
type rest struct {
	Transfer
	// within reports that a weighted mean of a shorter and a longer rest, at the same
	// number of transfers, has at least as many descriptors and bytes and at most as many
	// layers still to make. On a path with one regime the time of a rest is the larger of
	// two sums of its three counts, and prefill hides time in proportion to the layers. So
	// this rest exposes no more than one of those two.
	within bool
}

// NewTransfers returns the transfers of each, in order. Each must move at least a byte.
func NewTransfers(each []Transfer) Transfers {
	t := Transfers{rests: make([]rest, len(each))}
	var sum Transfer
	var hull []int // the rests so far that are not within
	for k := len(each) - 1; k >= 0; k-- {
		sum.Descriptors += each[k].Descriptors
		sum.Bytes += each[k].Bytes
		sum.Layers += max(1, each[k].Layers)
		t.rests[k].Transfer = sum
		for len(hull) > 1 && t.spans(hull[len(hull)-2], hull[len(hull)-1], k) {
			t.rests[hull[len(hull)-1]].within = true
			hull = hull[:len(hull)-1]
		}
		hull = append(hull, k)
	}
	return t
}

// spans reports whether rest k is within the rests i, the shortest, and j, the longest.
func (t Transfers) spans(i, k, j int) bool {
	part, whole := float64(i-k), float64(i-j)
	reaches := func(from, at, to float64) bool { return (at-from)*whole <= (to-from)*part }
	a, b, c := t.rests[i], t.rests[k], t.rests[j]
	return reaches(float64(a.Descriptors), float64(b.Descriptors), float64(c.Descriptors)) &&
		reaches(float64(a.Bytes), float64(b.Bytes), float64(c.Bytes)) &&
		reaches(-float64(t.ahead(i)), -float64(t.ahead(k)), -float64(t.ahead(j)))
}

// EqualTransfers returns count transfers with descriptors and bytes spread evenly among
// them. The first ones take the remainders.
func EqualTransfers(count, descriptors int, bytes int64) Transfers {
	each := make([]Transfer, max(0, count))
	for k := range each {
		each[k] = Transfer{Descriptors: descriptors / count, Bytes: bytes / int64(count)}
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

// Layers is the number of layers that prefill makes for all transfers.
func (t Transfers) Layers() int {
	if len(t.rests) == 0 {
		return 0
	}
	return t.rests[0].Layers
}

// Bytes is the bytes of all transfers.
func (t Transfers) Bytes() int64 { return t.whole().Bytes }

// Descriptors is the number of descriptors of all transfers.
func (t Transfers) Descriptors() int { return t.whole().Descriptors }

// Totals are the three figures of a batch, in the order of [Cost.Seconds].
func (t Transfers) Totals() (transfers, descriptors int, bytes int64) {
	return t.Count(), t.Descriptors(), t.Bytes()
}

func (t Transfers) whole() Transfer {
	if len(t.rests) == 0 {
		return Transfer{}
	}
	return t.rests[0].Transfer
}

// after is the number of transfers after transfer k.
func (t Transfers) after(k int) int { return len(t.rests) - 1 - k }

// ahead is the number of layers that prefill has still to make when transfer k is ready.
func (t Transfers) ahead(k int) int {
	if t.after(k) == 0 {
		return 0
	}
	return t.rests[k+1].Layers
}

// last is the last transfer; there must be one.
func (t Transfers) last() Transfer { return t.rests[len(t.rests)-1].Transfer }
