package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"kvbench/bench"
	"kvbench/transport"
	"kvbench/transport/cuda"
	"kvbench/transport/rdma"
	"kvbench/transport/staged"
	"kvbench/transport/tcp"
)

// The exit statuses. Scripts rely on them.
const (
	exitDone    = 0
	exitFailed  = 1
	exitUsage   = 2
	exitOutside = 3 // measured outside tolerance
	exitCorrupt = 4 // data arrived wrong
)

// transports returns the transports of this build. GPU memory over tcp and rdma is
// staged, unless the transport below can move it directly.
func transports() []transport.Transport {
	return []transport.Transport{tcp.New(), rdma.New(), cuda.New(), staged.Over(tcp.New()), staged.Over(rdma.New())}
}

// app is one invocation of the program.
type app struct {
	in         io.Reader
	out, err   io.Writer
	transports []transport.Transport

	fromEnvironment []string // flags set from the environment
}

// errOutside is returned when a measurement lies outside its tolerance.
var errOutside = errors.New("measured outside tolerance")

// usageError is a mistake in the program's invocation.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// asUsage marks an error as the caller's mistake; nil stays nil.
func asUsage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

// run executes the program and returns its exit status.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{in: stdin, out: stdout, err: stderr, transports: transports()}
	return a.run(ctx, args)
}

func (a *app) run(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	status := exitStatus(err)
	if status == exitUsage {
		err = blameEnvironment(err, a.fromEnvironment)
	}
	if err != nil {
		// Joined errors contain line ends; print one line.
		fmt.Fprintf(a.err, "kvbench: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
		if status == exitUsage {
			fmt.Fprintln(a.err, "Run with --help to see what there is.")
		}
	}
	return status
}

func exitStatus(err error) int {
	var usage usageError
	var plan *bench.PlanError
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, bench.ErrCorrupt):
		return exitCorrupt
	case errors.Is(err, errOutside):
		return exitOutside
	case errors.As(err, &usage), errors.As(err, &plan), errors.Is(err, bench.ErrOtherPath):
		return exitUsage
	}
	return exitFailed
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "kvbench",
		Short: "Measure and predict the cost of moving a KV cache between hosts",
		Long: `kvbench measures what it costs to move an LLM's KV cache from a prefill node
(the producer) to a decode node (the consumer), layer by layer, and holds the
measurement against what arithmetic predicts.

  kvbench loopback      try it on this machine, nothing to set up
  kvbench consumer      on the decode host, then
  kvbench producer      on the prefill host
  kvbench predict       the arithmetic alone
  kvbench devices       what this host can move data with

Every flag can be given in the environment as KVBENCH_<FLAG>.
Exit status: 0 done, 1 failed, 2 wrong usage, 3 outside tolerance, 4 data arrived wrong.`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.readFlags(cmd) },
	}
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{inPlainWords(err)} })
	root.AddCommand(a.loopbackCommand(), a.consumerCommand(), a.producerCommand(), a.shapeCommand(), a.predictCommand(), a.checkCommand(), a.devicesCommand(), a.versionCommand())
	for _, c := range root.Commands() {
		if c.Args == nil {
			c.Args = takes()
		}
	}
	adoptCobras(root)
	// This runs without a command, or with an unknown one.
	root.Args = cobra.ArbitraryArgs
	root.SuggestionsMinimumDistance = 2 // edits; cobra's default applies only to cobra's message
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return unknownCommand(root, args[0])
	}
	return root
}

// readFlags completes the command line's flags from the environment. It returns a usage
// error for variables of no flag, numbers out of bounds and flags without effect.
func (a *app) readFlags(cmd *cobra.Command) error {
	written := written(cmd.Flags())
	var err error
	if a.fromEnvironment, err = fromEnvironment(cmd.Flags()); err != nil {
		return err
	}
	if !ofCobra(cmd) {
		if err := refuseUnknownVariables(cmd.Root()); err != nil {
			return err
		}
	}
	if err := refuseOutOfBounds(cmd.Flags()); err != nil {
		return err
	}
	return refuseIdle(cmd, written)
}
