//go:build ucx && cgo && linux

package ucx

import (
	"testing"
)

// copying is how much memory a test writes over, again and again: over shared memory UCX
// copies it in the calls that post it.
const copying = 4 << 20

// copiedBetweenLooks is more than is copied between two looks: 64 MiB, and what a stint of
// 2 ms adds at 64 GiB/s, which no core copies.
const copiedBetweenLooks = 64<<20 + 128<<20

// toCopy is a connection over shared memory on which transfers of so many pieces of 1 MiB,
// each a put, can be submitted, in slots from 0 on.
func toCopy(t *testing.T, pieces ...int) *pair {
	p := connected(t, "sysv,posix", len(pieces), len(pieces))
	local, _ := p.a.memory(copying, 1)
	remote, _ := p.b.memory(copying, 2)
	key, err := p.a.Import(remote.Key)
	if err != nil {
		t.Fatal(err)
	}
	const piece = 1 << 20
	for slot, n := range pieces {
		list := p.a.Pieces(slot, n)
		for i := range list {
			at := uint64(i * piece % copying)
			list[i] = Piece{Local: uint64(local.Address) + at, Remote: uint64(remote.Address) + at, Length: piece}
		}
		p.a.Fill(slot, Put, uint64(slot), int64(n*piece), n, local, key, 0)
	}
	return p
}

// endless is pieces of more than anybody waits for: 1 TiB. Stop ends it.
const endless = 1 << 20

// TestAnnouncedWhileCopying: a transfer that is copied is announced to the peer before the
// last of those that were posted with it is copied. Announcements leave at each look, and
// the second of 128 transfers is followed, as the first may be taken alone.
func TestAnnouncedWhileCopying(t *testing.T) {
	const transfers, pieces = 128, 4
	list := make([]int, transfers)
	for i := range list {
		list[i] = pieces
	}
	p := toCopy(t, list...)
	for slot := range transfers {
		p.a.Submit(slot)
	}
	looks := make(map[uint64]uint32)
	for len(looks) < transfers {
		if e := p.a.next(); e.Kind == Local {
			looks[e.ID] = e.Look
		}
	}
	if between, want := looks[transfers-1]-looks[1], uint32((transfers-2)*pieces<<20/copiedBetweenLooks); between < want {
		t.Errorf("%d looks between the second and the last of %d transfers, want %d at least", between, transfers, want)
	}
}

// TestToldWhileCopying: the peer has a transfer while those that were posted with it are
// copied.
func TestToldWhileCopying(t *testing.T) {
	p := toCopy(t, 4, 4, endless)
	for slot := range 3 {
		p.a.Submit(slot)
	}
	for told := (Event{}); told.ID != 1; {
		told = p.b.await(Written)
	}
	for _, e := range p.a.drain() {
		if e.Slot == 2 {
			t.Errorf("the peer was told of the second transfer after the third: %+v", e)
		}
	}
}

// TestAnswersWhileCopying: whoever wants something of a worker waits for a part of a large
// transfer only.
func TestAnswersWhileCopying(t *testing.T) {
	p := toCopy(t, 1, endless)
	p.a.Submit(0)
	p.a.await(Local)
	p.a.await(Delivered)
	begun := p.a.Moved()
	p.a.Submit(1)
	until(t, "it has begun", func() bool { return p.a.Moved() > begun })
	if _, err := p.a.Address(); err != nil {
		t.Fatal(err)
	}
	for _, e := range p.a.drain() {
		if e.Slot == 1 {
			t.Errorf("an answer came after all was copied: %+v", e)
		}
	}
}

// TestLooksWhileCopying: a thread that copies a large transfer looks for what others want
// of it in between.
func TestLooksWhileCopying(t *testing.T) {
	const pieces = 1024
	p := toCopy(t, 1, pieces)
	p.a.Submit(0)
	before := p.a.await(Local).Look
	p.a.await(Delivered)
	p.a.Submit(1)
	if between, want := p.a.await(Local).Look-before, uint32(pieces<<20/copiedBetweenLooks); between < want {
		t.Errorf("%d looks while %d MiB are copied, want %d at least", between, pieces, want)
	}
}
