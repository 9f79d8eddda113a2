package main

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

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
	formats, err := payload.ParseFormats(f.dtype)
	if err != nil {
		return usagef("--kv-dtype: %w", err)
	}
	f.dtype = formats[0].String()
	specs, err := f.specs()
	if err != nil {
		return err
	}
	rank, err := f.parseRank()
	if err != nil {
		return err
	}
	view := report.ShapeView{Prefill: rank.Prefill, Decode: rank.Decode}
	for _, s := range specs {
		for _, s.Format = range formats {
			shape, err := s.Shape()
			if err != nil {
				return asUsage(err)
			}
			if _, err := s.Sizes(rank.Prefill, rank.Decode); err != nil && !movesNothing(err) {
				return asUsage(err)
			}
			view.Rows = append(view.Rows, report.ShapeRow{Spec: s, Shape: shape})
		}
	}
	for i, t := range view.Tables() {
		if i > 0 {
			if report.Format(format) != report.Text {
				break // programs get the first table, which holds everything
			}
			fmt.Fprintln(a.out)
		}
		if err := a.print(t, format); err != nil {
			return err
		}
	}
	return nil
}

// movesNothing reports whether err means that no rank pair moves any of the request's
// bytes. The request still has a shape to show.
func movesNothing(err error) bool {
	var nothing *payload.NothingError
	return errors.As(err, &nothing) && len(nothing.Pairs) == 0
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
			{Value: name, Text: name}, {Value: report.WholeNumber(b), Text: strconv.FormatFloat(b, 'f', -1, 64)},
			{Value: len(g.Layers), Text: strconv.Itoa(len(g.Layers))}, {Value: g.AttentionLayers(), Text: strconv.Itoa(g.AttentionLayers())},
		})
	}
	return a.print(t, format)
}
