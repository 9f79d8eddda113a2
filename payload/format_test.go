package payload

import (
	"encoding/json"
	"strings"
	"testing"
)

func format(t testing.TB, s string) Format {
	t.Helper()
	f, err := ParseFormat(s)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFormatSpellings(t *testing.T) {
	for in, canonical := range map[string]string{
		"fp16": "fp16", " FP16 ": "fp16", "float16": "fp16", "bf16": "bf16", "bfloat16": "bf16", "fp8": "fp8", "fp8_e4m3": "fp8",
		"fp8-token-head": "fp8-token-head", "int8": "int8", "int8-g128": "int8-g128", "int4": "int4", "int4-g64": "int4-g64",
		"nvfp4": "nvfp4", "mxfp4": "mxfp4", "kivi2": "kivi2", "spectrum:0.50": "spectrum:0.5", "spectrum:1": "spectrum:1", "ratio:0.3": "ratio:0.3",
		"pdtrim:4/64/0-39": "pdtrim:4/64/0-39", "pdtrim:4,64,0-39": "pdtrim:4/64/0-39", "pdtrim:4,64,0-9,70-79": "pdtrim:4/64/0-9+70-79",
		"pdtrim:4/64/5+3-4+9": "pdtrim:4/64/3-5+9", "pdtrim:0/0/1/2-3": "pdtrim:0/0/1/2-3", "pdtrim:4,64,0-9,11/70-79": "pdtrim:4/64/0-9+11/70-79",
	} {
		f, err := ParseFormat(in)
		if err != nil || f.String() != canonical {
			t.Errorf("ParseFormat(%q) = %s, %v, want %s", in, f, err, canonical)
			continue
		}
		text, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		var back Format
		if err := json.Unmarshal(text, &back); err != nil || back.String() != canonical {
			t.Errorf("%s comes back from JSON as %s, %v", canonical, back, err)
		}
	}
	for _, s := range Formats() {
		if f, err := ParseFormat(s); err != nil || f.String() != s {
			t.Errorf("Formats lists %s, which reads as %s, %v", s, f, err)
		}
	}
	if got := (Format{}).String(); got != "fp16" {
		t.Errorf("the zero format is %s", got)
	}
}

func TestFormatErrors(t *testing.T) {
	for in, says := range map[string]string{
		"": "no such format", "fp4": "int4-g64", "int8-g0": "group", "int8-g": "group", "int4-gx": "group", "int4-g99999999999": "group",
		"spectrum": "budget", "spectrum:0.2": "0.25", "spectrum:1.01": "to 1", "spectrum:nan": "budget", "ratio:0": "above 0", "ratio:-1": "above 0", "ratio:inf": "above 0",
		"pdtrim": "three fields", "pdtrim:1/2": "three fields", "pdtrim:a/2/0": "tokens", "pdtrim:1/-2/0": "tokens", "pdtrim:1/2/": "no layer",
		"pdtrim:1/2/5-3": "range", "pdtrim:1/2/0-99999999": "range", "pdtrim:1/2/0/": "no layer", strings.Repeat("x", 10000): "no such format",
	} {
		_, err := ParseFormat(in)
		if err == nil || !strings.Contains(err.Error(), says) || len(err.Error()) > 400 {
			t.Errorf("ParseFormat(%.30q): %.500v does not say %q", in, err, says)
		}
	}
}

func TestParseFormats(t *testing.T) {
	for in, want := range map[string]string{
		"fp16": "fp16", "fp16,fp8,int4-g64": "fp16 fp8 int4-g64",
		"fp16,pdtrim:4,64,0-9,70-79,fp8": "fp16 pdtrim:4/64/0-9+70-79 fp8",
		"spectrum:0.5, ratio:0.3":        "spectrum:0.5 ratio:0.3",
	} {
		formats, err := ParseFormats(in)
		var got []string
		for _, f := range formats {
			got = append(got, f.String())
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("ParseFormats(%q) = %v, %v, want %s", in, got, err, want)
		}
	}
	for _, in := range []string{"", ",", "fp16,", "fp16,,fp8", "fp16,nope"} {
		if _, err := ParseFormats(in); err == nil {
			t.Errorf("ParseFormats(%q) passes", in)
		}
	}
}

func TestParseLayers(t *testing.T) {
	layers, err := ParseLayers("70-72,0-1,1-2")
	if err != nil || len(layers) != 6 || layers[0] != 0 || layers[2] != 2 || layers[5] != 72 {
		t.Errorf("0-2 and 70-72 read as %v, %v", layers, err)
	}
	for _, in := range []string{"", "a", "1-", "-1", "3-2", "99999"} {
		if _, err := ParseLayers(in); err == nil || !strings.HasPrefix(err.Error(), "read layers ") {
			t.Errorf("ParseLayers(%q): %v", in, err)
		}
	}
}

// One full layer, 2 heads of 128, 4096 tokens: 8192 vectors of K and as many of V.
func TestFormatBytes(t *testing.T) {
	const vectors = 2 * 2 * 4096
	for spelling, want := range map[string]struct {
		bytes, published int64
		descriptors      int64
	}{
		"fp16":           {vectors * 256, vectors * 256, 2},
		"bf16":           {vectors * 256, vectors * 256, 2},
		"fp8":            {vectors * 128, vectors * 128, 2},
		"fp8-token-head": {vectors * (128 + 4), vectors * 128, 2},
		"int8":           {vectors * (128 + 2), vectors * 128, 4},
		"int8-g128":      {vectors * (128 + 4), vectors * 128, 4},
		"int8-g32":       {vectors * (128 + 4*4), vectors * 128, 4},
		"int4":           {vectors * (64 + 2), vectors * 64, 4},
		"int4-g64":       {vectors * (64 + 2*4), vectors * 64, 4},
		"nvfp4":          {vectors * (64 + 8), vectors * 64, 4},
		"mxfp4":          {vectors * (64 + 4), vectors * 64, 2},
		// 3968 tokens at 0.25+4/32 bytes an element, 128 at 2
		"kivi2": {2*2*3968*48 + 2*2*128*256, vectors * 32, 4},
		// 4 tokens fp16, 4092 int8 with a scale each, 1024 bytes of map
		"spectrum:0.5": {2*2*4*256 + 2*2*4092*130 + 1024, vectors * 128, 5},
		// 4 fp16; shares 4*0.375-1 = 0.5 int8 and 0.5 int4 of 4092
		"spectrum:0.375": {2*2*4*256 + 2*2*2046*130 + 2*2*2046*66 + 1024, vectors * 96, 7},
		// 4 and 0.5 of 4092 fp16, 0.5 int8
		"spectrum:0.75": {2*2*2050*256 + 2*2*2046*130 + 1024, vectors * 192, 5},
		"spectrum:1":    {vectors*256 + 1024, vectors * 256, 3},
		"spectrum:0.25": {2*2*4*256 + 2*2*4092*66 + 1024, vectors * 64, 5},
		"ratio:0.5":     {vectors * 128, vectors * 128, 2},
		"ratio:0.3":     {2 * 629146, 1258292, 2}, // 0.3 * 2097152 = 629145.6 a range
		"pdtrim:4/64/0": {2 * 2 * 68 * 256, 2 * 2 * 68 * 256, 2},
		"pdtrim:4/64/1": {0, 0, 0}, // the model has no layer 1: see below
	} {
		g := Geometry{Layers: []Layer{{Kind: Full, KVHeads: 2, KDim: 128, VDim: 128}}}
		s, err := Spec{Geometry: g, Tokens: 4096, Format: format(t, spelling)}.Shape()
		if want.bytes == 0 {
			if err == nil || !strings.Contains(err.Error(), "layer 1") {
				t.Errorf("%s: %v", spelling, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", spelling, err)
			continue
		}
		if s.Bytes != want.bytes || s.WireBytes != want.bytes || s.PublishedBytes != want.published || s.Pairs[0].Descriptors != want.descriptors {
			t.Errorf("%s: %d bytes, %d on the wire, %d published, %d descriptors, want %+v", spelling, s.Bytes, s.WireBytes, s.PublishedBytes, s.Pairs[0].Descriptors, want)
		}
	}
}

// Vectors of 65 elements: codes round up to bytes, scales to groups.
func TestFormatOddDims(t *testing.T) {
	g := Geometry{Layers: []Layer{{Kind: Full, KVHeads: 1, KDim: 65, VDim: 65}}}
	for spelling, vector := range map[string]int64{
		"fp16": 130, "int4": 33 + 2, "int4-g64": 33 + 2*4, "int8-g64": 65 + 2*4, "nvfp4": 33 + 5, "mxfp4": 3 * 17, "fp8-token-head": 69,
	} {
		s := shape(t, Spec{Geometry: g, Tokens: 10, Format: format(t, spelling)})
		if s.Bytes != 2*10*vector {
			t.Errorf("%s: %d bytes, want %d", spelling, s.Bytes, 2*10*vector)
		}
		if uneven := strings.Contains(strings.Join(s.Notes, "\n"), "rounds vectors of 65"); uneven != (spelling[0] != 'f') {
			t.Errorf("%s: notes are %q", spelling, s.Notes)
		}
	}
}

func TestBytesPerToken(t *testing.T) {
	g := Geometry{Layers: []Layer{
		{Kind: Full, KVHeads: 2, KDim: 128, VDim: 128}, {Kind: Window, KVHeads: 2, KDim: 128, VDim: 128, Window: 64}, {Kind: Linear, StateBytes: 5},
	}}
	for spelling, want := range map[string]float64{
		"fp16": 2 * 4 * 256, "fp8": 2 * 4 * 128, "int4": 2 * 4 * 66, "kivi2": 2 * 4 * 48, "spectrum:0.5": 2 * (4*130 + 0.25),
		"spectrum:0.25": 2 * (4*66 + 0.25), "ratio:0.5": 2 * 4 * 128, "pdtrim:4/64/0": 4 * 256,
	} {
		if got := g.BytesPerToken(format(t, spelling)); got != want {
			t.Errorf("%s: %v bytes a token, want %v", spelling, got, want)
		}
	}
}

func FuzzParseFormat(f *testing.F) {
	for _, s := range append(Formats(), "pdtrim:4,64,0-9,70-79", "pdtrim:1/2/3/4", "int8-g1", "spectrum:0.25", "nope", "ratio:1e-3") {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		formats, err := ParseFormats(s)
		if err != nil {
			return
		}
		var list []string
		for _, p := range formats {
			list = append(list, p.String())
			if strings.Contains(p.String(), ",") {
				t.Fatalf("%q: %s has a comma", s, p)
			}
		}
		again, err := ParseFormats(strings.Join(list, ","))
		if err != nil || len(again) != len(formats) {
			t.Fatalf("%q reads as %v, which reads as %v, %v", s, list, again, err)
		}
		for i := range again {
			if again[i].String() != list[i] {
				t.Fatalf("%s reads as %s", list[i], again[i])
			}
		}
	})
}
