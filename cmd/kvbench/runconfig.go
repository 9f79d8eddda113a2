package main

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"kvbench/bench"
	"kvbench/results"
)

// config returns a run's configuration for its record: the flags with their values, with
// defaults resolved if they follow from other values. Flags without effect are left out.
func (f *runFlags) config(cmd *cobra.Command, record *results.Run) map[string]string {
	config := effective(cmd)
	if record.Link == nil { // there was no link to compare with
		maps.DeleteFunc(config, func(name, _ string) bool { return slices.Contains(specFlags, name) })
	} else if _, counts := config["mtu"]; counts {
		config["mtu"] = strconv.Itoa(record.Link.MTU)
	}
	if op, counts := config["rdma-op"]; counts {
		config["rdma-op"] = cmp.Or(op, usualOperation[bench.Direction(f.direction)])
	}
	if f.duration == 0 { // --requests applied
		delete(config, "duration")
	}
	f.estimate.note(config)
	return config
}

// usualOperation is the RDMA operation without --rdma-op.
var usualOperation = map[bench.Direction]string{bench.Push: "put", bench.Pull: "get"}

// secretFlags are left out of a record.
var secretFlags = map[string]bool{"token": true}

// effective returns a command's flags with their values, without the flags that have no
// effect.
func effective(cmd *cobra.Command) map[string]string {
	config := map[string]string{"command": cmd.Name()}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !secretFlags[f.Name] && !f.Hidden && f.Name != "help" {
			config[f.Name] = f.Value.String()
		}
	})
	for _, i := range idleOf(cmd) {
		delete(config, i.flag)
	}
	return config
}
