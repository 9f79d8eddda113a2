package payload

import (
	"encoding/binary"
	"fmt"
)

// Identity names one block of one request. It determines the block's bytes.
type Identity struct {
	Run     uint64 // random for each run
	Request uint64 // counts up over a run, warm-up included
	Layer   uint32 // position of the transfer in the plan
	Block   uint32 // position of the block in the transfer
}

const (
	// stampBytes is the size of a stamp: four little-endian words that hold run, request,
	// layer<<32|block, and a check over them.
	stampBytes = 32
	// minStamped is the smallest block with a stamp at either end. A smaller one
	// is filled and checked whole.
	minStamped = 2 * stampBytes
)

// mix is SplitMix64's finaliser (Steele, Lea and Flood, OOPSLA 2014): a bijection
// in which every input bit moves every output bit.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

const golden = 0x9e3779b97f4a7c15

// key condenses the identity to the seed of the block's pseudo-random bytes.
func (id Identity) key() uint64 {
	k := mix(id.Run + golden)
	k = mix(k ^ id.Request + golden)
	return mix(k ^ (uint64(id.Layer)<<32 | uint64(id.Block)) + golden)
}

// stamp writes the identity to b, which has stampBytes. The stamp at the end of a block
// differs from the one at its head, so that neither can pass for the other.
func (id Identity) stamp(b []byte, tail uint64) {
	_ = b[stampBytes-1]
	place := uint64(id.Layer)<<32 | uint64(id.Block)
	binary.LittleEndian.PutUint64(b, id.Run)
	binary.LittleEndian.PutUint64(b[8:], id.Request)
	binary.LittleEndian.PutUint64(b[16:], place)
	binary.LittleEndian.PutUint64(b[24:], mix(id.key()+tail))
}

// noise fills b with the block's pseudo-random bytes.
func (id Identity) noise(b []byte) {
	k := id.key()
	for len(b) >= 8 {
		k += golden
		binary.LittleEndian.PutUint64(b, mix(k))
		b = b[8:]
	}
	if len(b) > 0 {
		var last [8]byte
		binary.LittleEndian.PutUint64(last[:], mix(k+golden))
		copy(b, last[:])
	}
}

// isNoise reports whether b, from byte skip (a multiple of 8) to its end, holds the block's
// pseudo-random bytes.
func (id Identity) isNoise(b []byte, skip int) bool {
	k := id.key() + golden*uint64(skip/8)
	b = b[skip:]
	var differ uint64
	for len(b) >= 8 {
		k += golden
		differ |= binary.LittleEndian.Uint64(b) ^ mix(k)
		b = b[8:]
	}
	if len(b) > 0 {
		var got, want [8]byte
		copy(got[:], b)
		binary.LittleEndian.PutUint64(want[:], mix(k+golden))
		copy(want[len(b):], got[len(b):])
		differ |= binary.LittleEndian.Uint64(got[:]) ^ binary.LittleEndian.Uint64(want[:])
	}
	return differ == 0
}

// Depth is the extent of the check of received data.
type Depth string

// The depths.
const (
	VerifyNone  Depth = "none"
	VerifyStamp Depth = "stamp" // the stamps at both ends of every block
	VerifyFull  Depth = "full"  // every byte
)

// ParseDepth reads a Depth.
func ParseDepth(s string) (Depth, error) {
	switch d := Depth(s); d {
	case VerifyNone, VerifyStamp, VerifyFull:
		return d, nil
	}
	return "", fmt.Errorf("verification %q is not known: choose none, stamp or full", s)
}

// Noise fills mem with pseudo-random bytes, so that no page is all zeros and
// nothing compresses.
func Noise(mem []byte, seed uint64) {
	Identity{Run: seed, Request: 1 << 63}.noise(mem)
}

// Fill writes the contents of request's blocks to the source image: all bytes for
// VerifyFull, the stamps for VerifyStamp, nothing for VerifyNone.
func (p *Plan) Fill(source []byte, run, request uint64, d Depth) {
	p.each(run, request, d, func(id Identity, b Piece) {
		id.fill(source[b.Source:b.Source+b.Length], d)
	})
}

func (id Identity) fill(b []byte, d Depth) {
	if d == VerifyFull || len(b) < minStamped {
		id.noise(b)
	}
	if len(b) >= minStamped {
		id.stamp(b[:stampBytes], 1)
		id.stamp(b[len(b)-stampBytes:], 2)
	}
}

// each calls f for every block of the plan.
func (p *Plan) each(run, request uint64, d Depth, f func(Identity, Piece)) {
	if d == VerifyNone {
		return
	}
	for i, t := range p.Transfers {
		for j, b := range t.Blocks {
			f(Identity{Run: run, Request: request, Layer: uint32(i), Block: uint32(j)}, b)
		}
	}
}

// Verdict is the outcome of checking received data.
type Verdict struct {
	Checked    int64  `json:"checked"`    // blocks
	Mismatched int64  `json:"mismatched"` // blocks with wrong contents
	First      string `json:"first,omitempty"`
}

// Add adds another verdict's counts.
func (v *Verdict) Add(o Verdict) {
	v.Checked += o.Checked
	v.Mismatched += o.Mismatched
	if v.First == "" {
		v.First = o.First
	}
}

// Check compares the destination image with the contents that request's blocks must have.
func (p *Plan) Check(dest []byte, run, request uint64, d Depth) Verdict {
	var v Verdict
	p.each(run, request, d, func(id Identity, b Piece) {
		v.Checked++
		got := dest[b.Dest : b.Dest+b.Length]
		if id.holds(got, d) {
			return
		}
		v.Mismatched++
		if v.First == "" {
			v.First = id.explain(got)
		}
	})
	return v
}

// holds reports whether b has the contents that fill writes.
func (id Identity) holds(b []byte, d Depth) bool {
	if len(b) < minStamped {
		return id.isNoise(b, 0)
	}
	var head, tail [stampBytes]byte
	id.stamp(head[:], 1)
	id.stamp(tail[:], 2)
	end := len(b) - stampBytes
	if [stampBytes]byte(b[:stampBytes]) != head || [stampBytes]byte(b[end:]) != tail {
		return false
	}
	return d != VerifyFull || id.isNoise(b[:end], stampBytes)
}

// explain describes the error in a block, as far as its bytes show it.
func (id Identity) explain(b []byte) string {
	where := fmt.Sprintf("request %d, transfer %d, block %d (%d bytes)", id.Request, id.Layer, id.Block, len(b))
	if len(b) < minStamped {
		return where + ": holds other bytes"
	}
	found := Identity{
		Run:     binary.LittleEndian.Uint64(b),
		Request: binary.LittleEndian.Uint64(b[8:]),
		Layer:   binary.LittleEndian.Uint32(b[20:]),
		Block:   binary.LittleEndian.Uint32(b[16:]),
	}
	var head, tail, own [stampBytes]byte
	found.stamp(head[:], 1)
	id.stamp(own[:], 1)
	id.stamp(tail[:], 2)
	switch end := len(b) - stampBytes; {
	case [stampBytes]byte(b[:stampBytes]) == own && [stampBytes]byte(b[end:]) != tail:
		return where + ": its head arrived, its end did not"
	case [stampBytes]byte(b[:stampBytes]) == own:
		return where + ": damaged between its stamps"
	case [stampBytes]byte(b[:stampBytes]) != head:
		return where + ": holds no stamp: never written, or damaged"
	case found.Run != id.Run:
		return where + ": holds a block of another run"
	case found.Request != id.Request:
		return fmt.Sprintf("%s: stale, holds transfer %d, block %d of request %d", where, found.Layer, found.Block, found.Request)
	}
	return fmt.Sprintf("%s: misplaced, holds transfer %d, block %d", where, found.Layer, found.Block)
}
