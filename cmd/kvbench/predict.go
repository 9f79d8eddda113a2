package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kvbench/internal/units"
	"kvbench/model"
	"kvbench/report"
)

type predictFlags struct {
	shape shapeFlags
	linkFlags
	links  []string
	rate   string
	format string
}

func (a *app) predictCommand() *cobra.Command {
	var f predictFlags
	cmd := &cobra.Command{
		Use:   "predict",
		Short: "Predict transfer times from arithmetic alone",
		Example: `  kvbench predict --model llama-2-70b --context 1K,8K,32K --link 100gbe,ib-ndr
  kvbench predict --model opt-66b --context 512 --link 100gbe --rate 10/s`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.predict(&f) },
	}
	f.shape.register(cmd, []string{"1K", "4K", "8K", "32K"})
	f.linkFlags.register(cmd)
	cmd.Flags().StringSliceVar(&f.links, "link", []string{"100gbe", "ib-ndr", "nvlink4"}, linkHelp)
	cmd.Flags().StringVar(&f.rate, "rate", "", "requests a second that share the link, such as 10/s: adds utilization and waits")
	registerFormat(cmd, &f.format)
	return cmd
}

func (a *app) predict(f *predictFlags) error {
	if err := checkFormat(f.format); err != nil {
		return err
	}
	specs, err := f.shape.specs()
	if err != nil {
		return err
	}
	rank, err := f.shape.parseRank()
	if err != nil {
		return err
	}
	framing, err := f.parse()
	if err != nil {
		return err
	}
	rate, err := parseArrivals(f.rate)
	if err != nil {
		return err
	}
	t := report.Table{Columns: []report.Column{
		{Key: "context_tokens", Head: "context"}, {Key: "link", Head: "link"}, {Key: "bytes", Head: "bytes"}, {Key: "transfer_seconds", Head: "transfer"},
		{Key: "overhead_fraction", Head: "overhead"}, {Key: "utilization", Head: ""}, {Key: "wait_fcfs_seconds", Head: ""}, {Key: "wait_ps_seconds", Head: ""}, {Key: "verdict", Head: ""},
	}}
	if rate > 0 {
		for i, head := range []string{"utilization", "wait FCFS", "wait PS", "verdict"} {
			t.Columns[5+i].Head = head
		}
	}
	bases := make(map[string]bool)
	for _, s := range specs {
		shape, err := s.Shape()
		if err != nil {
			return asUsage(err)
		}
		pair, ok := shape.Pair(rank.Prefill, rank.Decode)
		if !ok {
			return usagef("--rank %s moves nothing; pairs that do: %s", f.shape.rank, pairNames(shape.Pairs))
		}
		for _, name := range f.links {
			link, err := model.ParseLink(name)
			if err != nil {
				return usagef("--link: %w", err)
			}
			if err := link.Check(f.mtu, framing); err != nil {
				return asUsage(err)
			}
			_, _, basis := link.Goodput(f.mtu, framing)
			if !bases[link.Name] {
				bases[link.Name] = true
				t.Notes = append(t.Notes, fmt.Sprintf("%s: %s one way; %s", link.Name, units.BitRate(link.BytesPerSecond), basis))
			}
			cost := model.SpecCost(link, f.mtu, framing, f.alpha, f.gamma)
			seconds := cost.Seconds(1, int(pair.Descriptors), pair.Bytes)
			row := []report.Cell{
				{Value: s.Tokens, Text: units.Tokens(s.Tokens)},
				{Value: link.Name, Text: link.Name},
				{Value: pair.Bytes, Text: units.Bytes(pair.Bytes)},
				{Value: seconds, Text: units.Seconds(seconds)},
				overheadCell(seconds, float64(pair.Bytes)/link.BytesPerSecond),
			}
			t.Rows = append(t.Rows, append(row, loadCells(rate, seconds)...))
		}
	}
	return a.print(t, f.format)
}

// overheadCell is the share of the time that the line rate alone does not explain.
func overheadCell(seconds, floor float64) report.Cell {
	share := 0.0
	if seconds > 0 {
		share = 1 - floor/seconds
	}
	return report.Cell{Value: share, Text: fmt.Sprintf("%.1f %%", 100*share)}
}

// loadCells are the columns that --rate adds; absent without it. Waits of an
// unstable link grow without bound: null.
func loadCells(rate, seconds float64) []report.Cell {
	if rate == 0 {
		return []report.Cell{{Value: report.Absent}, {Value: report.Absent}, {Value: report.Absent}, {Value: report.Absent}}
	}
	q := model.Load{ArrivalsPerSecond: rate, ServiceSeconds: seconds}.Queue()
	verdict := "stable"
	if !q.Stable {
		verdict = "unstable: requests arrive faster than the link moves them"
	}
	return []report.Cell{
		{Value: q.Utilization, Text: fmt.Sprintf("%.3f", q.Utilization)},
		waitCell(q.WaitFCFS), waitCell(q.WaitPS),
		{Value: verdict, Text: verdict},
	}
}

func waitCell(seconds float64) report.Cell {
	if math.IsInf(seconds, 0) || math.IsNaN(seconds) {
		return report.Cell{Value: nil, Text: "unbounded"}
	}
	return report.Cell{Value: seconds, Text: units.Seconds(seconds)}
}

// parseArrivals reads 10/s, 600/m or 10 as arrivals a second; empty is 0.
func parseArrivals(s string) (float64, error) {
	if s == "" {
		return 0, nil
	}
	number, unit, _ := strings.Cut(s, "/")
	per, ok := map[string]time.Duration{"": time.Second, "s": time.Second, "m": time.Minute, "min": time.Minute, "h": time.Hour}[unit]
	v, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(v > 0) || math.IsInf(v, 0) {
		return 0, usagef("--rate %q is not a rate such as 10/s", s)
	}
	return v / per.Seconds(), nil
}
