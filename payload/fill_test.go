package payload

import (
	"bytes"
	"strings"
	"testing"
)

// tiny is a hand-made plan: two transfers, blocks of several sizes at different
// places on either side.
func tiny() *Plan {
	blocks := [][]Piece{
		{{0, 300, 100}, {100, 200, 64}, {164, 100, 63}},
		{{300, 0, 8}, {308, 8, 3}, {320, 400, 200}},
	}
	p := &Plan{SourceBytes: 520, DestBytes: 600}
	for i, b := range blocks {
		p.Transfers = append(p.Transfers, Transfer{Layer: i, Pieces: b, Blocks: b})
	}
	return p
}

func (p *Plan) copyInto(dest, source []byte) {
	for _, t := range p.Transfers {
		for _, b := range t.Pieces {
			copy(dest[b.Dest:b.Dest+b.Length], source[b.Source:])
		}
	}
}

func TestFillAndCheck(t *testing.T) {
	p := tiny()
	for _, d := range []Depth{VerifyNone, VerifyStamp, VerifyFull} {
		source, dest := make([]byte, p.SourceBytes), make([]byte, p.DestBytes)
		Noise(source, 1)
		before := bytes.Clone(source)
		p.Fill(source, 42, 7, d)
		p.copyInto(dest, source)
		got := p.Check(dest, 42, 7, d)
		want := Verdict{Checked: 6}
		if d == VerifyNone {
			want = Verdict{}
			if !bytes.Equal(source, before) {
				t.Errorf("%s: Fill wrote", d)
			}
		}
		if got != want {
			t.Errorf("%s: Check = %+v, want %+v", d, got, want)
		}
	}
}

// TestCheckSeesDamage flips each byte in turn: full sees all of them, stamp
// those in stamps and in blocks that are too small for one.
func TestCheckSeesDamage(t *testing.T) {
	p := tiny()
	for _, d := range []Depth{VerifyStamp, VerifyFull} {
		source, dest := make([]byte, p.SourceBytes), make([]byte, p.DestBytes)
		p.Fill(source, 42, 7, d)
		p.copyInto(dest, source)
		for _, tr := range p.Transfers {
			for _, b := range tr.Blocks {
				for i := range b.Length {
					dest[b.Dest+i] ^= 0x10
					want := int64(1)
					if d == VerifyStamp && b.Length >= 64 && i >= 32 && i < b.Length-32 {
						want = 0
					}
					if got := p.Check(dest, 42, 7, d); got.Mismatched != want {
						t.Fatalf("%s: byte %d of a block of %d: %+v, want %d mismatched", d, i, b.Length, got, want)
					}
					dest[b.Dest+i] ^= 0x10
				}
			}
		}
	}
}

func TestCheckExplains(t *testing.T) {
	p := tiny()
	fresh := func(run, request uint64) []byte {
		source, dest := make([]byte, p.SourceBytes), make([]byte, p.DestBytes)
		p.Fill(source, run, request, VerifyFull)
		p.copyInto(dest, source)
		return dest
	}
	for _, c := range []struct {
		name string
		dest func() []byte
		want string
	}{
		{"stale", func() []byte { return fresh(1, 6) }, "stale, holds transfer 0, block 0 of request 6"},
		{"other run", func() []byte { return fresh(2, 7) }, "another run"},
		{"empty", func() []byte { return make([]byte, p.DestBytes) }, "holds no stamp"},
		{"misplaced", func() []byte {
			d := fresh(1, 7)
			copy(d[300:364], d[200:264])
			return d
		}, "misplaced, holds transfer 0, block 1"},
		{"truncated", func() []byte {
			d := fresh(1, 7)
			clear(d[390:400])
			return d
		}, "its end did not"},
		{"damaged", func() []byte {
			d := fresh(1, 7)
			d[350]++
			return d
		}, "damaged between"},
	} {
		got := p.Check(c.dest(), 1, 7, VerifyFull)
		if got.Mismatched == 0 || !strings.Contains(got.First, c.want) {
			t.Errorf("%s: %+v, want %q", c.name, got, c.want)
		}
	}
}

// TestNoiseDoesNotRepeat: blocks that differ in one field of their identity share no word.
func TestNoiseDoesNotRepeat(t *testing.T) {
	base := Identity{Run: 1, Request: 2, Layer: 3, Block: 4}
	seen := make(map[[8]byte]Identity)
	for _, id := range []Identity{base, {2, 2, 3, 4}, {1, 3, 3, 4}, {1, 2, 4, 4}, {1, 2, 3, 5}, {1, 2, 4, 3}} {
		b := make([]byte, 4096)
		id.noise(b)
		for i := 0; i < len(b); i += 8 {
			w := [8]byte(b[i:])
			if other, ok := seen[w]; ok {
				t.Fatalf("%+v and %+v share the word %x", id, other, w)
			}
			seen[w] = id
		}
	}
}

func BenchmarkFillFull(b *testing.B)  { benchmarkFill(b, VerifyFull) }
func BenchmarkFillStamp(b *testing.B) { benchmarkFill(b, VerifyStamp) }

func benchmarkFill(b *testing.B, d Depth) {
	p, mem := benchmarkPlan()
	b.SetBytes(int64(len(mem)))
	b.ReportAllocs()
	for b.Loop() {
		p.Fill(mem, 1, 2, d)
	}
}

func BenchmarkCheckFull(b *testing.B) {
	p, mem := benchmarkPlan()
	p.Fill(mem, 1, 2, VerifyFull)
	b.SetBytes(int64(len(mem)))
	b.ReportAllocs()
	for b.Loop() {
		if v := p.Check(mem, 1, 2, VerifyFull); v.Mismatched != 0 {
			b.Fatal(v)
		}
	}
}

func benchmarkPlan() (*Plan, []byte) {
	const size, block = 16 << 20, 32 << 10
	var t Transfer
	for at := int64(0); at < size; at += block {
		t.Blocks = append(t.Blocks, Piece{at, at, block})
	}
	return &Plan{SourceBytes: size, DestBytes: size, Transfers: []Transfer{t}}, make([]byte, size)
}
