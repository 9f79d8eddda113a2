package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"kvbench/internal/units"
	"kvbench/payload"
)

// ShapeRow is one context and format of a model.
type ShapeRow struct {
	Spec  payload.Spec
	Shape payload.Shape
}

// ShapeView is the output of `kvbench shape`: one model, at several contexts and formats,
// and the rank pair for the descriptor count.
type ShapeView struct {
	Rows            []ShapeRow
	Prefill, Decode int
}

// Tables returns the sizes, which hold all data for programs, and, for people, the layers
// by kind and the rank pairs.
func (v ShapeView) Tables() []Table {
	return []Table{v.sizes(), v.kinds(), v.pairs()}
}

func (v ShapeView) sizes() Table {
	t := Table{Columns: []Column{
		{"model", "model"}, {"context_tokens", "context"}, {"kv_dtype", "format"},
		{"bytes", "KV cache"}, {"bytes_per_token", "bytes a token"}, {"published_bytes", "as advertised"}, {"state_bytes", "state"},
		{"layers", "layers"}, {"attention_layers", "with KV"}, {"descriptors", "descriptors"}, {"wire_bytes", "on the wire"}, {"pairs", ""}, {"kinds", ""},
	}}
	differs := false
	for _, r := range v.Rows {
		s := r.Shape
		differs = differs || s.PublishedBytes != s.Bytes
		pair, _ := s.Pair(v.Prefill, v.Decode)
		name := r.Spec.Geometry.Model
		t.Rows = append(t.Rows, []Cell{
			{name, name},
			{r.Spec.Tokens, units.Tokens(r.Spec.Tokens)},
			{r.Spec.Format.String(), r.Spec.Format.String()},
			{s.Bytes, units.Bytes(s.Bytes)},
			{WholeNumber(s.BytesPerToken), number(s.BytesPerToken)},
			{s.PublishedBytes, units.Bytes(s.PublishedBytes)},
			{s.StateBytes, dashZero(s.StateBytes)},
			{s.Layers, strconv.Itoa(s.Layers)},
			{s.AttentionLayers, strconv.Itoa(s.AttentionLayers)},
			{pair.Descriptors, strconv.FormatInt(pair.Descriptors, 10)},
			{s.WireBytes, units.Bytes(s.WireBytes)},
			{pairRows(s.Pairs), ""},
			{kindRows(s.Kinds), ""},
		})
	}
	if !differs {
		t.Columns[5].Head = ""
	}
	var seen []string
	for _, r := range v.Rows {
		for _, n := range r.Shape.Notes {
			if !slices.Contains(seen, n) {
				seen = append(seen, n)
			}
		}
	}
	t.Notes = append(seen, fmt.Sprintf("descriptors: of rank pair %d:%d; on the wire: all rank pairs together", v.Prefill, v.Decode))
	return t
}

// kinds lists the layers by geometry, with the sizes of the last row.
func (v ShapeView) kinds() Table {
	t := Table{Columns: []Column{
		{"", "layers"}, {"", "count"}, {"", "KV heads"}, {"", "K + V"}, {"", "holds tokens"}, {"", "bytes a token"}, {"", "state"}, {"", "KV cache"},
	}}
	last := v.Rows[len(v.Rows)-1]
	for _, k := range last.Shape.Kinds {
		l := k.Layer
		heads, dims, holds := "-", "-", "-"
		if l.KVHeads > 0 {
			heads, dims, holds = strconv.Itoa(l.KVHeads), fmt.Sprintf("%d + %d", l.KDim, l.VDim), "all"
		}
		if l.Kind == payload.Latent {
			heads, dims = "1 latent", strconv.Itoa(l.KDim)
		}
		if l.Window > 0 {
			holds = "last " + units.Tokens(l.Window)
		}
		perToken := "-"
		if k.BytesPerToken > 0 {
			perToken = number(k.BytesPerToken)
		}
		t.Rows = append(t.Rows, text(string(l.Kind), strconv.Itoa(k.Count), heads, dims, holds, perToken, dashZero(k.StateBytes), dashZero(k.Bytes)))
	}
	t.Notes = []string{fmt.Sprintf("at %s tokens in %s; all layers of a kind together", units.Tokens(last.Spec.Tokens), last.Spec.Format)}
	return t
}

// pairs groups the rank pairs of the last row by their equal sizes.
func (v ShapeView) pairs() Table {
	t := Table{Columns: []Column{{"", "rank pairs"}, {"", "pairs"}, {"", "each moves"}, {"", "descriptors"}}}
	last := v.Rows[len(v.Rows)-1]
	type size struct{ bytes, descriptors int64 }
	groups := make(map[size][]string)
	var order []size
	for _, p := range last.Shape.Pairs {
		k := size{p.Bytes, p.Descriptors}
		if len(groups[k]) == 0 {
			order = append(order, k)
		}
		groups[k] = append(groups[k], fmt.Sprintf("%d:%d", p.Prefill, p.Decode))
	}
	slices.SortStableFunc(order, func(a, b size) int { return cmp.Compare(b.bytes, a.bytes) })
	for _, k := range order {
		names := groups[k]
		shown := strings.Join(names, " ")
		if len(names) > 6 {
			shown = strings.Join(names[:3], " ") + " ... " + names[len(names)-1]
		}
		t.Rows = append(t.Rows, text(shown, strconv.Itoa(len(names)), units.Bytes(k.bytes), strconv.FormatInt(k.descriptors, 10)))
	}
	return t
}

type pairRow struct {
	Prefill     int   `json:"prefill"`
	Decode      int   `json:"decode"`
	Bytes       int64 `json:"bytes"`
	Descriptors int64 `json:"descriptors"`
}

func pairRows(pairs []payload.RankPair) []pairRow {
	rows := make([]pairRow, len(pairs))
	for i, p := range pairs {
		rows[i] = pairRow(p)
	}
	return rows
}

type kindRow struct {
	Kind          payload.Kind `json:"kind"`
	Count         int          `json:"count"`
	KVHeads       int          `json:"kv_heads"`
	KDim          int          `json:"k_dim"`
	VDim          int          `json:"v_dim"`
	WindowTokens  int64        `json:"window_tokens"`
	TokensHeld    int64        `json:"tokens_held"`
	BytesPerToken any          `json:"bytes_per_token"`
	Bytes         int64        `json:"bytes"`
	StateBytes    int64        `json:"state_bytes"`
}

func kindRows(kinds []payload.KindSummary) []kindRow {
	rows := make([]kindRow, len(kinds))
	for i, k := range kinds {
		l := k.Layer
		rows[i] = kindRow{l.Kind, k.Count, l.KVHeads, l.KDim, l.VDim, l.Window, k.Tokens, WholeNumber(k.BytesPerToken), k.Bytes, k.StateBytes}
	}
	return rows
}

// WholeNumber keeps integers integers in JSON.
func WholeNumber(v float64) any {
	if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
		return int64(v)
	}
	return v
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

func dashZero(n int64) string {
	if n == 0 {
		return "-"
	}
	return units.Bytes(n)
}

// text is a row for people only.
func text(values ...string) []Cell {
	row := make([]Cell, len(values))
	for i, v := range values {
		row[i] = Cell{Text: v}
	}
	return row
}
