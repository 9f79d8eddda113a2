package payload

import "math"

// part is one byte range of a layer in its wire format: an entry for every unit of
// tokens and, unless shared, every head.
type part struct {
	unit   int64   // tokens that one entry covers
	bytes  int64   // bytes an entry and head
	shared bool    // one entry for all heads: each rank needs the whole part
	ratio  float64 // share of the bytes left by an entropy coder; 0 without one
}

// size returns the part's bytes for heads over tokens; tokens must be a whole number of
// units.
func (p part) size(tokens, heads int64) int64 {
	if p.shared {
		heads = 1
	}
	n := tokens / p.unit * heads * p.bytes
	if p.ratio > 0 {
		return roundUp(p.ratio * float64(n))
	}
	return n
}

// segment is a set of a layer's tokens with one storage layout: contiguous ranges of
// tokens, or blocks of blockTokens, one range or pool of blocks for each part.
type segment struct {
	tokens      int64
	blocks      int64
	blockTokens int64
	parts       []part
}

const (
	kiviGroup      = 32  // tokens of a K channel, elements of a V token, that share a scale and zero
	kiviResidual   = 128 // newest tokens left in fp16
	spectrumSinks  = 4   // first tokens left in fp16
	groupScale     = 4   // FP16 scale and FP16 zero
	tokenScale     = 2   // FP16 scale
	tokenHeadScale = 4   // FP32 scale
)

// segments returns the segments of layer l, the index-th of its model, for a request of
// n tokens. It is empty if the layer ships nothing for them. B is the tokens of a
// block.
func (f Format) segments(l Layer, index int, n, B int64) []segment {
	if !l.Attention() || f.drops(index) {
		return nil
	}
	held := l.Tokens(n)
	var out []segment
	switch f.code {
	case codeKIVI2:
		out = kivi(l, held, B)
	case codeSpectrum:
		out = f.spectrum(l, n, held, B)
	default:
		tokens, blocks := f.kept(index, n, held, B)
		out = []segment{{tokens, blocks, B, f.vectors(l)}}
	}
	if l.IndexBytes > 0 {
		tokens, blocks := f.kept(index, n, held, B)
		out = append(out, segment{tokens, blocks, B, []part{{unit: 1, bytes: l.IndexBytes, shared: true}}})
	}
	filled := out[:0]
	for _, s := range out {
		if s.tokens > 0 && len(s.parts) > 0 {
			filled = append(filled, s)
		}
	}
	return filled
}

// kept returns the number of the tokens [n-held, n) that a layer ships, and the number
// of blocks of B tokens that hold them. Blocks are aligned to the request's start, so a
// window that starts inside a block takes that block whole.
func (f Format) kept(index int, n, held, B int64) (tokens, blocks int64) {
	oldest, first, last := n-held, int64(0), n
	if f.code == codePDTrim && inRuns(f.trim, index) {
		first, last = f.first, f.last
	}
	head := min(first, n) // the layer keeps tokens [oldest, head) and [tail, n)
	tail := max(n-last, oldest, 0)
	if head >= tail {
		return held, ceilDiv(n, B) - oldest/B
	}
	headBlock, tailBlock := int64(0), tail/B // first block after the head's, first of the tail's
	if head > oldest {
		tokens = head - oldest
		headBlock = ceilDiv(head, B)
		blocks = headBlock - oldest/B
	}
	if n > tail {
		tokens += n - tail
		blocks += ceilDiv(n, B) - max(tailBlock, headBlock)
	}
	return tokens, blocks
}

func (f Format) drops(index int) bool { return f.code == codePDTrim && inRuns(f.drop, index) }

// vectors returns the parts of a layer with one encoding for all K and V vectors.
func (f Format) vectors(l Layer) []part {
	var parts, scales []part
	for _, dim := range []int{l.KDim, l.VDim} {
		if dim == 0 {
			continue
		}
		code, scale := f.vector(int64(dim))
		p := part{unit: 1, bytes: code}
		if f.code == codeRatio {
			p.ratio = f.share
		}
		parts = append(parts, p)
		if scale > 0 {
			scales = append(scales, part{unit: 1, bytes: scale})
		}
	}
	return append(parts, scales...)
}

// vector returns the bytes of d elements of one token and head: the bytes in the codes'
// range, and the bytes of scales in a separate range.
func (f Format) vector(d int64) (code, scale int64) {
	switch f.code {
	case codeFP8:
		return d, 0
	case codeFP8TokenHead:
		return d + tokenHeadScale, 0
	case codeInt8:
		return d, tokenScale
	case codeInt8Group:
		return d, ceilDiv(d, int64(f.group)) * groupScale
	case codeInt4:
		return ceilDiv(d, 2), tokenScale
	case codeInt4Group:
		return ceilDiv(d, 2), ceilDiv(d, int64(f.group)) * groupScale
	case codeNVFP4:
		return ceilDiv(d, 2), ceilDiv(d, 16)
	case codeMXFP4:
		return ceilDiv(d, 32) * 17, 0
	}
	return 2 * d, 0
}

// kivi splits a layer's tokens into those packed at 2 bits and the newest ones,
// which stay fp16 until they fill a group (Liu et al., KIVI, ICML 2024).
func kivi(l Layer, held, B int64) []segment {
	packed := max(0, held-kiviResidual) / kiviGroup * kiviGroup
	var parts []part
	if d := int64(l.KDim); d > 0 {
		parts = append(parts, part{unit: kiviGroup, bytes: kiviGroup/4*d + d*groupScale}) // the codes of a channel are stored together
	}
	if d := int64(l.VDim); d > 0 {
		parts = append(parts, part{unit: 1, bytes: ceilDiv(d, 4) + ceilDiv(d, kiviGroup)*groupScale})
	}
	b := ceilDiv(B, kiviGroup) * kiviGroup
	rest := held - packed
	return []segment{
		{packed, ceilDiv(packed, b), b, parts},
		{rest, ceilDiv(rest, B), B, Format{}.vectors(l)},
	}
}

// spectrum splits a layer's tokens over three precisions, each in a separate range or
// pool, and adds the map from token to precision.
func (f Format) spectrum(l Layer, n, held, B int64) []segment {
	sinks := min(held, max(0, spectrumSinks-(n-held)))
	half, eight, four := f.tiers(held - sinks)
	half += sinks
	mapBytes := ceilDiv(2*held, 8)
	return []segment{
		{half, ceilDiv(half, B), B, Format{}.vectors(l)},
		{eight, ceilDiv(eight, B), B, scaledInside(l, codeInt8)},
		{four, ceilDiv(four, B), B, scaledInside(l, codeInt4)},
		{1, 1, 1, []part{{unit: 1, bytes: mapBytes, shared: true}}},
	}
}

// tiers splits tokens so that the codes alone take the budget's share of fp16.
func (f Format) tiers(tokens int64) (half, eight, four int64) {
	if f.share <= 0.5 {
		eight = int64(math.Round((4*f.share - 1) * float64(tokens)))
		return 0, eight, tokens - eight
	}
	half = int64(math.Round((2*f.share - 1) * float64(tokens)))
	return half, tokens - half, 0
}

// scaledInside returns K and V with each vector's scale behind it: the tokens of a tier
// are scattered, so a scale travels with its vector.
func scaledInside(l Layer, c code) []part {
	parts := Format{code: c}.vectors(l)
	half := len(parts) / 2
	for i := range half {
		parts[i].bytes += parts[half+i].bytes
	}
	return parts[:half]
}

// bytesPerToken returns the bytes of one more token of layer l, counted as unbounded.
func (f Format) bytesPerToken(l Layer, index int) float64 {
	if !l.Attention() || f.drops(index) || f.code == codePDTrim && inRuns(f.trim, index) {
		return 0
	}
	h, keys := float64(l.KVHeads), float64(l.IndexBytes)
	sum := func(parts []part) (n float64) {
		for _, p := range parts {
			n += h * float64(p.bytes) / float64(p.unit)
		}
		return n
	}
	switch f.code {
	case codeKIVI2:
		return sum(kivi(l, kiviResidual, 1)[0].parts) + keys
	case codeSpectrum:
		half, eight := max(0, 2*f.share-1), 4*f.share-1
		if f.share > 0.5 {
			eight = 2 - 2*f.share
		}
		return half*sum(Format{}.vectors(l)) + eight*sum(scaledInside(l, codeInt8)) +
			(1-half-eight)*sum(scaledInside(l, codeInt4)) + 0.25 + keys
	case codeRatio:
		return f.share*sum(Format{}.vectors(l)) + keys
	}
	return sum(f.vectors(l)) + keys
}

// published returns the advertised bytes of the format: codes alone, without scales,
// maps, or the fp16 tokens beyond the budget.
func (f Format) published(l Layer, index int, n int64) int64 {
	if !l.Attention() || f.drops(index) {
		return 0
	}
	tokens, _ := f.kept(index, n, l.Tokens(n), 1)
	elements := tokens * l.Elements()
	keys := tokens * l.IndexBytes
	switch f.code {
	case codeFP8, codeFP8TokenHead, codeInt8, codeInt8Group:
		return elements + keys
	case codeInt4, codeInt4Group, codeNVFP4, codeMXFP4:
		return ceilDiv(elements, 2) + keys
	case codeKIVI2:
		return ceilDiv(elements, 4) + keys
	case codeSpectrum:
		return roundUp(f.share*float64(2*elements)) + keys
	case codeRatio:
		for _, p := range f.vectors(l) {
			keys += p.size(tokens, int64(l.KVHeads))
		}
		return keys
	}
	return 2*elements + keys
}

// roundUp returns the least whole number of bytes that hold x. It ignores the rounding
// error of a product such as 0.7*10.
func roundUp(x float64) int64 { return int64(math.Ceil(x * (1 - 1e-12))) }

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
