package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"kvbench/bench"
	"kvbench/model"
	"kvbench/results"
)

// linkFlags describe the path by a data sheet.
type linkFlags struct {
	mtu     int
	framing string
	alpha   float64
	gamma   float64
}

func (f *linkFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.IntVar(&f.mtu, "mtu", 0, "MTU for framing, bytes (default: the device's, or the link kind's)")
	flags.StringVar(&f.framing, "framing", "auto", "share of the line rate left to payload: auto, shaped (as a traffic shaper counts), off, or a factor such as 0.94")
	flags.Float64Var(&f.alpha, "alpha", 0, "startup seconds for the spec prediction")
	flags.Float64Var(&f.gamma, "gamma", 0, "seconds a descriptor for the spec prediction")
}

const linkHelp = "a name (25gbe 100gbe 200gbe 400gbe ib-hdr ib-ndr ib-xdr nvlink3 nvlink4 nvlink5 pcie4x16 pcie5x16) or a rate such as 25Gbit/s"

// parse returns the framing, or a usage error.
func (f *linkFlags) parse() (model.Framing, error) {
	framing, err := model.ParseFraming(f.framing)
	if err != nil {
		return framing, usagef("--framing: %w", err)
	}
	if framing.Mode == model.FramingFixed && framing.Factor < 0.01 {
		return framing, usagef("--framing %g: a factor is the share of the line rate left to payload, such as 0.94", framing.Factor)
	}
	return framing, nil
}

// checkFlags select the predictions for a run to be compared with.
type checkFlags struct {
	linkFlags
	link      string
	calibrate string
	check     bool
	tolerance string
	against   []string
}

func (f *checkFlags) register(cmd *cobra.Command) {
	f.linkFlags.register(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.link, "link", "auto", "the path's link for the spec prediction: auto (the device's rate), "+linkHelp)
	flags.StringVar(&f.calibrate, "calibrate", "auto", "auto: time the path between measurements, for the fitted prediction; off: do not; FILE: use the calibration of an earlier run record")
	flags.BoolVar(&f.check, "check", false, "exit with 3 where measured and predicted differ by more than --tolerance")
	f.registerJudge(cmd)
}

func (f *checkFlags) registerJudge(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.tolerance, "tolerance", "30%", "how far measured and predicted may differ, such as 15% or 0.15")
	cmd.Flags().StringSliceVar(&f.against, "against", []string{"spec", "fit"}, "predictions that must agree, where there are any: spec, fit")
}

// assumptions reads the flags. An auto link is resolved later, from the device.
func (f *checkFlags) assumptions() (bench.Assumptions, error) {
	a := bench.Assumptions{MTU: f.mtu, Alpha: f.alpha, Gamma: f.gamma, Source: "flag"}
	var err error
	if a.Framing, err = f.parse(); err != nil {
		return a, err
	}
	if f.link != "auto" {
		link, err := model.ParseLink(f.link)
		if err != nil {
			return a, usagef("--link: %w", err)
		}
		if err := link.Check(f.mtu, a.Framing); err != nil {
			return a, asUsage(err)
		}
		a.Link = &link
	}
	if f.calibrate != "auto" && f.calibrate != "off" {
		if a.Calibration, err = calibration(f.calibrate); err != nil {
			return a, err
		}
	}
	a.Judge, err = f.judge()
	return a, err
}

// calibration returns the fit in the record of an earlier run.
func calibration(path string) (*results.Fit, error) {
	record, err := results.ReadFile(path)
	if err != nil {
		return nil, usagef("--calibrate is auto or off, or a run record: %w", err)
	}
	if _, _, err := bench.FitOf(record); err != nil {
		return nil, fmt.Errorf("--calibrate %s: %w", path, err)
	}
	record.Fit.Source = path
	return record.Fit, nil
}

func (f *checkFlags) judge() (bench.Judge, error) {
	tolerance, err := parseShare(f.tolerance)
	if err == nil && tolerance > 1 && !strings.HasSuffix(f.tolerance, "%") {
		return bench.Judge{}, usagef("--tolerance %s would be %.0f %%: write %s%%, or a share such as 0.15", f.tolerance, 100*tolerance, f.tolerance)
	}
	if err != nil || tolerance <= 0 {
		return bench.Judge{}, usagef("--tolerance %q is not a share above 0 such as 15%% or 0.15", f.tolerance)
	}
	if len(f.against) == 0 {
		return bench.Judge{}, usagef("--against is empty: choose spec, fit or spec,fit")
	}
	for _, against := range f.against {
		if against != "spec" && against != "fit" {
			return bench.Judge{}, usagef("--against %q is not known: choose spec, fit or spec,fit", against)
		}
	}
	return bench.Judge{Tolerance: tolerance, Against: f.against}, nil
}

// parseShare parses 15% or 0.15.
func parseShare(s string) (float64, error) {
	number, percent := strings.CutSuffix(s, "%")
	v, err := strconv.ParseFloat(number, 64)
	if err == nil && (math.IsNaN(v) || math.IsInf(v, 0)) {
		err = strconv.ErrRange
	}
	if percent {
		v /= 100
	}
	return v, err
}
