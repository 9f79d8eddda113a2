package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kvbench/bench"
	"kvbench/internal/control"
	"kvbench/internal/hostinfo"
	"kvbench/internal/units"
	"kvbench/report"
	"kvbench/results"
)

func (a *app) producerCommand() *cobra.Command {
	var f runFlags
	var connect, token string
	var secure tlsFlags
	cmd := &cobra.Command{
		Use:   "producer --connect HOST:9400",
		Short: "Run the workload against a consumer and print what it cost",
		Example: `  kvbench producer --connect decode-7:9400 --token TOKEN --model llama-3.1-70b --context 4K,32K
  kvbench producer --connect decode-7:9400 --token TOKEN --link 100gbe --check --tolerance 15% --out run.json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if connect == "" {
				return usagef("--connect is needed: the consumer's address, such as decode-7:9400 (or run `kvbench loopback` to try this machine alone)")
			}
			if err := checkAddress("connect", connect, 1); err != nil {
				return err
			}
			tls, err := secure.client()
			if err != nil {
				return err
			}
			return a.measure(cmd, &f, func(ctx context.Context) (*bench.Producer, error) {
				return &bench.Producer{Connect: connect, Control: control.Options{Token: token, Build: version(), TLS: tls}}, nil
			})
		},
	}
	f.register(cmd)
	secure.register(cmd)
	cmd.Flags().StringVar(&connect, "connect", "", "the consumer's control address, HOST:PORT")
	cmd.Flags().StringVar(&token, "token", "", "secret shared with the consumer")
	return cmd
}

// measure is the common body of producer and loopback: it reads the flags, makes the run,
// writes its record and prints it. It calls reach, which makes the consumer reachable,
// only once all flags have been checked.
func (a *app) measure(cmd *cobra.Command, f *runFlags, reach func(context.Context) (*bench.Producer, error)) error {
	plan, load, err := f.plan(cmd.Flags().Changed)
	if err != nil {
		return err
	}
	assumed, err := f.check.assumptions()
	if err != nil {
		return err
	}
	if f.check.check && f.check.calibrate == "off" && assumed.Link == nil && f.check.link != "auto" {
		return usagef("--check with --calibrate off needs --link")
	}
	if err := assumed.Suits(&bench.Outcome{Plan: plan}); err != nil {
		return asUsage(err)
	}
	if err := checkFormat(f.format); err != nil {
		return err
	}
	var file *results.File
	if f.out != "" {
		if file, err = results.Create(f.out); err != nil {
			return err
		}
	}
	a.warnLong(f, load, len(plan.Specs))
	producer, err := reach(cmd.Context())
	if err != nil {
		return err
	}
	bar := newProgress(a.err)
	producer.Transports, producer.Host, producer.Observe = a.transports, hostinfo.Gather, bar.observe
	producer.Connected = assumed.Suits
	producer.MoreStreams = assumed.SlowerThanLink
	outcome, errRun := producer.Run(cmd.Context(), plan, load)
	bar.close()
	if errRun != nil && len(outcome.Cells) == 0 && len(outcome.Samples) == 0 {
		if errors.Is(errRun, context.Canceled) {
			return errInterruptedEarly
		}
		return errRun
	}
	if errors.Is(errRun, context.Canceled) {
		errRun = errInterrupted
	}
	record, err := bench.Summarize(outcome, assumed, errRun)
	if err != nil {
		return errors.Join(errRun, err)
	}
	record.Version, record.Config = version(), f.config(cmd, record)
	if record.Link == nil {
		a.warnNoLink(cmd)
	}
	errKept := a.keep(file, record)
	errJudged := a.judge(f, record, assumed.Judge, errRun == nil)
	if errors.Is(errRun, errInterrupted) {
		errRun = fmt.Errorf("%w; what was measured until then is printed, marked as incomplete", errRun)
		if file != nil && errKept == nil {
			errRun = fmt.Errorf("%w, and kept in %s", errRun, f.out)
		}
	}
	return errors.Join(errRun, errKept, errJudged)
}

// errInterrupted is returned when a run is interrupted midway. It is then the reason in
// the incomplete record.
var errInterrupted = errors.New("interrupted")

// errInterruptedEarly is returned when a run is interrupted before it has a result.
var errInterruptedEarly = errors.New("interrupted before anything was measured")

// longArrivals is the least wait for an open loop's arrivals that causes a warning.
const longArrivals = time.Minute

// warnLong prints how long a run will wait for the arrivals of an open loop, if that is
// long. The run would otherwise look stuck.
func (a *app) warnLong(f *runFlags, load bench.Load, contexts int) {
	if each := load.Length(); each > longArrivals/time.Duration(contexts) {
		fmt.Fprintf(a.err, "note: %s at %s take about %s to arrive, at each of %s; for less, raise --rate, lower --requests, or give --duration\n",
			units.Count(load.Requests, "request"), f.rate, each.Round(time.Second), units.Count(contexts, "context"))
	}
}

// warnNoLink prints the flags of a spec prediction that had no effect. With --link auto
// this is only certain once data has crossed a device.
func (a *app) warnNoLink(cmd *cobra.Command) {
	var idle []string
	for _, name := range specFlags {
		if cmd.Flags().Changed(name) && !slices.Contains(a.fromEnvironment, name) {
			idle = append(idle, "--"+name)
		}
	}
	if len(idle) > 0 {
		fmt.Fprintf(a.err, "warning: no effect of %s: the device has no rate of its own, so there is no spec prediction; name the link with --link\n", strings.Join(idle, ", "))
	}
}

// judge prints the record's table and, with --check, returns the verdict as an error.
func (a *app) judge(f *runFlags, record *results.Run, judge bench.Judge, whole bool) error {
	if err := a.print(report.Run(record), f.format); err != nil {
		return err
	}
	if !f.check.check || !whole {
		return nil
	}
	return verdict(record, judge)
}

// verdict returns the outcome of a check as an error.
func verdict(record *results.Run, judge bench.Judge) error {
	if err := bench.Corrupt(record); err != nil {
		return err
	}
	if err := judge.Checkable(record); err != nil {
		return err
	}
	if bench.Outside(record) {
		return fmt.Errorf("%w of %.4g %%", errOutside, 100*judge.Tolerance)
	}
	return nil
}

// keep writes the record, or writes it elsewhere if that fails: a run is too expensive to
// lose to a full disk.
func (a *app) keep(file *results.File, record *results.Run) error {
	if file == nil {
		return nil
	}
	err := file.Write(record)
	if err == nil {
		return nil
	}
	rescue, errTemp := os.MkdirTemp("", "kvbench-")
	if errTemp != nil {
		return errors.Join(err, errTemp)
	}
	other, errOther := results.Create(filepath.Join(rescue, "run.json"))
	if errOther == nil {
		errOther = other.Write(record)
	}
	if errOther != nil {
		return errors.Join(err, errOther)
	}
	return fmt.Errorf("%w; the record was saved as %s instead", err, filepath.Join(rescue, "run.json"))
}
