package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"kvbench/report"
	"kvbench/transport"
)

// release is set by the linker for a released build.
var release = "devel"

// version returns the release and, if the build recorded it, the commit.
func version() string {
	v := release
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	var revision, dirty string
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value
		case "vcs.modified":
			if s.Value == "true" {
				dirty = "+changes"
			}
		}
	}
	if len(revision) >= 12 {
		v += "-" + revision[:12] + dirty
	}
	return v
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version and what this build can do",
		RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Fprintf(a.out, "kvbench %s %s %s/%s\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			for _, t := range a.transports {
				state := "usable"
				if err := t.Probe(cmd.Context()); err != nil {
					state = err.Error()
				} else if l, ok := t.(transport.Library); ok {
					state += ", " + l.Library()
				}
				label := report.TransportState{Name: t.Name(), Capabilities: t.Capabilities()}.Label()
				fmt.Fprintf(a.out, "transport %s: %s\n", label, state)
			}
			return nil
		},
	}
}
