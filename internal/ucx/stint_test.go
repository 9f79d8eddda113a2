//go:build ucx && cgo && linux

package ucx

import (
	"testing"
	"time"
)

// copying is how much memory a test writes over, again and again: over shared memory UCX
// copies it in the calls that post it.
const copying = 4 << 20

// toCopy is a connection over shared memory on which transfers of so many pieces of 1 MiB,
// each a put, can be submitted, in slots from 0 on.
func toCopy(t *testing.T, slots, pieces int) *pair {
	p := connected(t, "sysv,posix", slots, slots)
	local, _ := p.a.memory(copying, 1)
	remote, _ := p.b.memory(copying, 2)
	key, err := p.a.Import(remote.Key)
	if err != nil {
		t.Fatal(err)
	}
	const piece = 1 << 20
	for slot := range slots {
		list := p.a.Pieces(slot, pieces)
		for i := range list {
			at := uint64(i * piece % copying)
			list[i] = Piece{Local: uint64(local.Address) + at, Remote: uint64(remote.Address) + at, Length: piece}
		}
		p.a.Fill(slot, Put, uint64(slot), int64(pieces*piece), pieces, local, key, 0)
	}
	return p
}

// TestToldWhileCopying: a transfer that is copied is announced to the peer, which has it
// before the last of those that were posted with it is copied. The second of 128 is looked
// at, as the first may be taken alone, and all of them are 512 MiB: tens of milliseconds
// at the least, for what takes a fraction of one.
func TestToldWhileCopying(t *testing.T) {
	const transfers = 128
	p := toCopy(t, transfers, 4)
	for slot := range transfers {
		p.a.Submit(slot)
	}
	var copied, told Event
	for copied.Slot != transfers-1 {
		if e := p.a.next(); e.Kind == Local {
			copied = e
		}
	}
	for told.ID != 1 {
		told = p.b.await(Written)
	}
	if told.At >= copied.At {
		t.Errorf("the peer had the second of %d transfers %v after the last was copied", transfers, time.Duration(told.At-copied.At))
	}
}

// TestAnswersWhileCopying: whoever wants something of a worker waits for a part of a large
// transfer only, here of 1 GiB.
func TestAnswersWhileCopying(t *testing.T) {
	p := toCopy(t, 1, 1024)
	start := p.a.Moved()
	p.a.Submit(0)
	for p.a.Moved() == start { // until it has begun
		time.Sleep(100 * time.Microsecond)
	}
	if _, err := p.a.Address(); err != nil {
		t.Fatal(err)
	}
	answered := Clock()
	if copied := p.a.await(Local); answered >= copied.At {
		t.Errorf("an answer came %v after all was copied", time.Duration(answered-copied.At))
	}
}
