package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"kvbench/internal/units"
	"kvbench/payload"
	"kvbench/report"
)

func (a *app) shapeCommand() *cobra.Command {
	var f shapeFlags
	var format string
	var list bool
	cmd := &cobra.Command{
		Use:   "shape",
		Short: "Show the bytes and descriptors of a model's KV cache",
		Example: `  kvbench shape --model llama-3.1-8b --context 4K,128K
  kvbench shape --model ./config.json --tp 8 --layout paged`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			if list {
				return a.listModels(format)
			}
			return a.shape(&f, format)
		},
	}
	f.register(cmd, []string{"512", "1K", "2K"})
	registerFormat(cmd, &format)
	cmd.Flags().BoolVar(&list, "list", false, "list the known models")
	return cmd
}

func (a *app) shape(f *shapeFlags, format string) error {
	specs, err := f.specs()
	if err != nil {
		return err
	}
	rank, err := f.parseRank()
	if err != nil {
		return err
	}
	t := report.Table{Columns: []report.Column{
		{Key: "model", Head: "model"}, {Key: "context_tokens", Head: "context"}, {Key: "kv_dtype", Head: "dtype"}, {Key: "bytes", Head: "bytes"},
		{Key: "bytes_per_token", Head: "a token"}, {Key: "state_bytes", Head: "state"}, {Key: "layers", Head: "layers"}, {Key: "attention_layers", Head: "with KV"},
		{Key: "descriptors", Head: "descriptors"}, {Key: "wire_bytes", Head: "on the wire"},
	}}
	for i, s := range specs {
		shape, err := s.Shape()
		if err != nil {
			return asUsage(err)
		}
		pair, ok := shape.Pair(rank.Prefill, rank.Decode)
		if !ok {
			return usagef("--rank %s moves nothing; pairs that do: %s", f.rank, pairNames(shape.Pairs))
		}
		if i == 0 {
			t.Notes = shapeNotes(s, shape)
		}
		t.Rows = append(t.Rows, []report.Cell{
			{Value: s.Geometry.Model, Text: s.Geometry.Model},
			{Value: s.Tokens, Text: units.Tokens(s.Tokens)},
			{Value: s.Format.String(), Text: s.Format.String()},
			{Value: shape.Bytes, Text: units.Bytes(shape.Bytes)},
			{Value: wholeNumber(shape.BytesPerToken), Text: strconv.FormatFloat(shape.BytesPerToken, 'f', -1, 64)},
			{Value: shape.StateBytes, Text: units.Bytes(shape.StateBytes)},
			{Value: shape.Layers, Text: strconv.Itoa(shape.Layers)},
			{Value: shape.AttentionLayers, Text: strconv.Itoa(shape.AttentionLayers)},
			{Value: pair.Descriptors, Text: strconv.FormatInt(pair.Descriptors, 10)},
			{Value: shape.WireBytes, Text: units.Bytes(shape.WireBytes)},
		})
	}
	return a.print(t, format)
}

// wholeNumber keeps integers integers in JSON.
func wholeNumber(v float64) any {
	if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
		return int64(v)
	}
	return v
}

func pairNames(pairs []payload.RankPair) string {
	var names []string
	for i, p := range pairs {
		if i == 8 {
			names = append(names, "...")
			break
		}
		names = append(names, fmt.Sprintf("%d:%d", p.Prefill, p.Decode))
	}
	return strings.Join(names, ", ")
}

// shapeNotes says what a model's layers are and what was assumed of it.
func shapeNotes(s payload.Spec, shape payload.Shape) []string {
	var notes []string
	for _, k := range shape.Kinds {
		notes = append(notes, kindNote(k))
	}
	notes = append(notes, s.Geometry.Notes...)
	return append(notes, shape.Notes...)
}

func kindNote(k payload.KindSummary) string {
	l := k.Layer
	head := fmt.Sprintf("%d %s layer(s)", k.Count, l.Kind)
	switch {
	case l.Kind == payload.Latent:
		head += fmt.Sprintf(": one latent of %d elements a token", l.KDim)
	case l.KVHeads > 0:
		head += fmt.Sprintf(": %d KV heads, K %d and V %d elements", l.KVHeads, l.KDim, l.VDim)
	}
	if l.Window > 0 {
		head += fmt.Sprintf(", the last %s tokens", units.Tokens(l.Window))
	}
	if k.BytesPerToken > 0 {
		head += fmt.Sprintf(", %s bytes a token together", strconv.FormatFloat(k.BytesPerToken, 'f', -1, 64))
	}
	if k.StateBytes > 0 {
		head += fmt.Sprintf(", %s of state a request", units.Bytes(k.StateBytes))
	}
	return head
}

func (a *app) listModels(format string) error {
	t := report.Table{Columns: []report.Column{{Key: "model", Head: "model"}, {Key: "bytes_per_token_fp16", Head: "bytes a token (fp16)"}, {Key: "layers", Head: "layers"}, {Key: "attention_layers", Head: "with KV"}}}
	fp16, err := payload.ParseFormat("fp16")
	if err != nil {
		return err
	}
	for _, name := range payload.Presets() {
		g, err := payload.Load(name)
		if err != nil {
			return err
		}
		b := g.BytesPerToken(fp16)
		t.Rows = append(t.Rows, []report.Cell{
			{Value: name, Text: name}, {Value: wholeNumber(b), Text: strconv.FormatFloat(b, 'f', -1, 64)},
			{Value: len(g.Layers), Text: strconv.Itoa(len(g.Layers))}, {Value: g.AttentionLayers(), Text: strconv.Itoa(g.AttentionLayers())},
		})
	}
	return a.print(t, format)
}
