package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"kvbench/bench"
	"kvbench/report"
	"kvbench/results"
)

func (a *app) checkCommand() *cobra.Command {
	var f checkFlags
	var format string
	cmd := &cobra.Command{
		Use:     "check RUN.json",
		Short:   "Hold a recorded run against its predictions again",
		Example: `  kvbench check run.json --tolerance 15% --against fit`,
		Args:    takes("RUN.json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			judge, err := f.judge()
			if err != nil {
				return err
			}
			if err := checkFormat(format); err != nil {
				return err
			}
			record, err := readRecord(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			// A run with wrong data has ended early, and has its verdict.
			if bench.Corrupt(record) == nil {
				if err := bench.Recheck(record, judge); err != nil {
					return err
				}
			}
			if err := a.print(report.Run(record), format); err != nil {
				return err
			}
			return verdict(record, judge)
		},
	}
	f.registerJudge(cmd)
	registerFormat(cmd, &format)
	return cmd
}

// readRecord reads a record. A pipe may block without end, so the context can interrupt
// the read.
func readRecord(ctx context.Context, path string) (*results.Run, error) {
	type read struct {
		record *results.Run
		err    error
	}
	done := make(chan read, 1)
	go func() {
		record, err := results.ReadFile(path)
		done <- read{record, err}
	}()
	select {
	case r := <-done:
		return r.record, r.err
	case <-ctx.Done():
		return nil, fmt.Errorf("read %s: interrupted", path)
	}
}
