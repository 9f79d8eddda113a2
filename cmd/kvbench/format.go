package main

import (
	"github.com/spf13/cobra"

	"kvbench/report"
)

func registerFormat(cmd *cobra.Command, f *string) {
	cmd.Flags().StringVar(f, "format", "text", "how to print the table: text, json or csv")
}

// print writes a table to the output in the given format.
func (a *app) print(t report.Table, format string) error {
	f, err := report.ParseFormat(format)
	if err != nil {
		return usagef("--format: %w", err)
	}
	return t.Write(a.out, f)
}

// checkFormat returns a usage error for a wrong --format, before any work is done.
func checkFormat(format string) error {
	_, err := report.ParseFormat(format)
	if err != nil {
		return usagef("--format: %w", err)
	}
	return nil
}
