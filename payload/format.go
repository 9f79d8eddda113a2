package payload

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Format is a wire format: the bytes of an element of K or V, and the place of its
// scales. The zero value is fp16. Its spellings, bytes an element for vectors of d
// elements, and places of the scales:
//
//	fp16, bf16       2
//	fp8              1              static scale on both sides: not shipped
//	fp8-token-head   1 + 4/d        FP32 scale a token and head, inside: after its vector
//	int8             1 + 2/d        FP16 scale a token and head, beside: in a separate range
//	int8-gN          1 + 4/N        FP16 scale and zero a group of N elements, beside
//	int4             0.5 + 2/d      FP16 scale a token and head, beside
//	int4-gN          0.5 + 4/N      FP16 scale and zero a group of N elements, beside
//	nvfp4            0.5 + 1/16     FP8 scale a group of 16, beside (its per-tensor scale is static)
//	mxfp4            0.5 + 1/32     E8M0 scale a group of 32, inside: before its 16 bytes
//	kivi2            0.25 + 4/32    FP16 scale and zero a group of 32 (K: 32 tokens of a channel,
//	                                V: 32 elements of a token), inside; newest 128 tokens fp16
//	spectrum:F       F of fp16      F is 0.25..1: tiers of fp16, int8 and int4 tokens, each a range
//	                                with its scales inside, and a map of 2 bits a token and layer
//	pdtrim:A/B/L     fp16           layers L send only the first A and the last B tokens
//	pdtrim:A/B/L/M   fp16           and layers M send nothing
//	ratio:X          2X             an entropy coder's output; X is an input, not computed
//
// Vectors are rounded up to whole bytes and whole groups. Layers are ranges joined by
// +, as in 0-9+70-79. A comma can replace + and /, as in pdtrim:4,64,0-39.
type Format struct {
	code  code
	group int        // elements a group of int8-gN and int4-gN
	share float64    // spectrum's budget, ratio's ratio
	first int64      // pdtrim: tokens kept at the start
	last  int64      // pdtrim: tokens kept at the end
	trim  []layerRun // pdtrim: layers that keep only first and last tokens
	drop  []layerRun // pdtrim: layers that ship nothing
}

type code uint8

const (
	codeFP16 code = iota
	codeBF16
	codeFP8
	codeFP8TokenHead
	codeInt8
	codeInt8Group
	codeInt4
	codeInt4Group
	codeNVFP4
	codeMXFP4
	codeKIVI2
	codeSpectrum
	codePDTrim
	codeRatio
)

// plainNames are the formats without parameters, and engines' names for them.
var plainNames = []struct {
	name string
	code code
}{
	{"fp16", codeFP16}, {"bf16", codeBF16}, {"fp8", codeFP8}, {"fp8-token-head", codeFP8TokenHead},
	{"int8", codeInt8}, {"int4", codeInt4}, {"nvfp4", codeNVFP4}, {"mxfp4", codeMXFP4}, {"kivi2", codeKIVI2},
	{"float16", codeFP16}, {"bfloat16", codeBF16}, {"fp8_e4m3", codeFP8}, {"fp8_e5m2", codeFP8},
	{"fp8_per_token_head", codeFP8TokenHead},
}

// Formats lists the spellings that ParseFormat accepts, with example parameters.
func Formats() []string {
	return []string{
		"fp16", "bf16", "fp8", "fp8-token-head", "int8", "int8-g128", "int4", "int4-g64", "nvfp4", "mxfp4", "kivi2",
		"spectrum:0.5", "pdtrim:4/64/0-39", "ratio:0.3",
	}
}

// ParseFormat reads one of the spellings that Format documents. It returns an error for
// any other text.
func ParseFormat(s string) (Format, error) {
	name := strings.ToLower(strings.TrimSpace(s))
	for _, p := range plainNames {
		if p.name == name {
			return Format{code: p.code}, nil
		}
	}
	if base, group, ok := strings.Cut(name, "-g"); ok && (base == "int8" || base == "int4") {
		return parseGrouped(s, base, group)
	}
	base, arg, _ := strings.Cut(name, ":")
	switch base {
	case "spectrum":
		share, err := parseShare(s, arg, 0.25, "the budget")
		return Format{code: codeSpectrum, share: share}, err
	case "ratio":
		share, err := parseShare(s, arg, math.SmallestNonzeroFloat32, "the ratio")
		return Format{code: codeRatio, share: share}, err
	case "pdtrim":
		return parsePDTrim(s, arg)
	}
	return Format{}, fmt.Errorf("read format %.60q: no such format; use one of %s", s, strings.Join(Formats(), ", "))
}

// ParseFormats reads a comma-separated list of formats. A comma before a digit belongs
// to the format before it: fp16,pdtrim:4,64,0-39,fp8 is three.
func ParseFormats(s string) ([]Format, error) {
	var formats []Format
	for start, i := 0, 0; i <= len(s); i++ {
		if i < len(s) && (s[i] != ',' || i+1 < len(s) && s[i+1] >= '0' && s[i+1] <= '9') {
			continue
		}
		f, err := ParseFormat(s[start:i])
		if err != nil {
			return nil, err
		}
		formats, start = append(formats, f), i+1
	}
	return formats, nil
}

func parseGrouped(s, base, group string) (Format, error) {
	n, err := strconv.Atoi(group)
	if err != nil || n < 1 || n > maxDim {
		return Format{}, fmt.Errorf("read format %.60q: the group is no number of elements from 1 to %d; write %s-g64", s, maxDim, base)
	}
	c := codeInt8Group
	if base == "int4" {
		c = codeInt4Group
	}
	return Format{code: c, group: n}, nil
}

func parseShare(s, arg string, least float64, what string) (float64, error) {
	v, err := strconv.ParseFloat(arg, 64)
	if err != nil || !(v >= least && v <= 1) {
		from := "above 0"
		if least >= 0.01 {
			from = strconv.FormatFloat(least, 'g', -1, 64)
		}
		return 0, fmt.Errorf("read format %.60q: %s is not a number from %s to 1; write it as in spectrum:0.5 or ratio:0.3", s, what, from)
	}
	return v, nil
}

func parsePDTrim(s, arg string) (Format, error) {
	bad := func(what string) (Format, error) {
		return Format{}, fmt.Errorf("read format %.60q: %s; write pdtrim:FIRST/LAST/LAYERS[/DROPPED] as in pdtrim:4/64/0-39+60/70-79", s, what)
	}
	fields := strings.SplitN(arg, "/", 4)
	if len(fields) < 3 {
		fields = strings.SplitN(arg, ",", 3)
	}
	if len(fields) < 3 {
		return bad("three fields are needed")
	}
	f := Format{code: codePDTrim}
	for i, to := range []*int64{&f.first, &f.last} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil || n < 0 || n > maxTokens {
			return bad(fmt.Sprintf("%.20q is no number of tokens", fields[i]))
		}
		*to = n
	}
	if len(fields) == 3 {
		if before, after, ok := strings.Cut(fields[2], "/"); ok {
			fields = []string{fields[0], fields[1], before, after}
		}
	}
	var err error
	if f.trim, err = parseRuns(fields[2]); err != nil {
		return bad(err.Error())
	}
	if len(fields) == 4 {
		if f.drop, err = parseRuns(fields[3]); err != nil {
			return bad(err.Error())
		}
	}
	return f, nil
}

// String returns the canonical spelling: ParseFormat reads it and it has no comma.
func (f Format) String() string {
	number := strconv.FormatFloat(f.share, 'g', -1, 64)
	switch f.code {
	case codeInt8Group:
		return "int8-g" + strconv.Itoa(f.group)
	case codeInt4Group:
		return "int4-g" + strconv.Itoa(f.group)
	case codeSpectrum:
		return "spectrum:" + number
	case codeRatio:
		return "ratio:" + number
	case codePDTrim:
		s := fmt.Sprintf("pdtrim:%d/%d/%s", f.first, f.last, formatRuns(f.trim))
		if len(f.drop) > 0 {
			s += "/" + formatRuns(f.drop)
		}
		return s
	}
	for _, p := range plainNames {
		if p.code == f.code {
			return p.name
		}
	}
	return "unknown"
}

// MarshalText writes the canonical spelling.
func (f Format) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads any spelling of ParseFormat.
func (f *Format) UnmarshalText(text []byte) error {
	v, err := ParseFormat(string(text))
	if err == nil {
		*f = v
	}
	return err
}

// Input reports whether the size depends on a figure from the user instead of
// arithmetic.
func (f Format) Input() bool { return f.code == codeRatio }

// layerRun is a range of layers, both ends included.
type layerRun struct{ from, to int }

// ParseLayers reads layers such as 0-9,70-79 (or with + for the comma) and returns
// their indices, ascending and unique.
func ParseLayers(s string) ([]int, error) {
	runs, err := parseRuns(s)
	if err != nil {
		return nil, fmt.Errorf("read layers %.60q: %w; write them as in 0-9,70-79", s, err)
	}
	var layers []int
	for _, r := range runs {
		for l := r.from; l <= r.to; l++ {
			layers = append(layers, l)
		}
	}
	return layers, nil
}

// parseRuns reads ranges, sorts them and joins adjacent ones, so that equal sets are
// equal values.
func parseRuns(s string) ([]layerRun, error) {
	var runs []layerRun
	for _, field := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == '+' }) {
		low, high, isRange := strings.Cut(strings.TrimSpace(field), "-")
		if !isRange {
			high = low
		}
		from, err1 := strconv.Atoi(low)
		to, err2 := strconv.Atoi(high)
		if err1 != nil || err2 != nil || from < 0 || to < from || to >= maxLayers {
			return nil, fmt.Errorf("%.20q is no range of layers", field)
		}
		runs = append(runs, layerRun{from, to})
	}
	slices.SortFunc(runs, func(a, b layerRun) int { return a.from - b.from })
	merged := runs[:0]
	for _, r := range runs {
		if n := len(merged); n > 0 && r.from <= merged[n-1].to+1 {
			merged[n-1].to = max(merged[n-1].to, r.to)
			continue
		}
		merged = append(merged, r)
	}
	if len(merged) == 0 {
		return nil, fmt.Errorf("no layer is named")
	}
	return merged, nil
}

func formatRuns(runs []layerRun) string {
	var b strings.Builder
	for i, r := range runs {
		if i > 0 {
			b.WriteByte('+')
		}
		b.WriteString(strconv.Itoa(r.from))
		if r.to > r.from {
			b.WriteString("-" + strconv.Itoa(r.to))
		}
	}
	return b.String()
}

func inRuns(runs []layerRun, layer int) bool {
	return slices.ContainsFunc(runs, func(r layerRun) bool { return r.from <= layer && layer <= r.to })
}
