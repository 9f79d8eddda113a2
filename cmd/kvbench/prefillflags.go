package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kvbench/model"
	"kvbench/payload"
)

// prefillFlags set the time of a prefill.
type prefillFlags struct {
	prefill string
	gpu     string
	gpus    int
	mfu     float64
	fp8     bool
}

func (f *prefillFlags) register(cmd *cobra.Command, prefillHelp string) {
	flags := cmd.Flags()
	flags.StringVar(&f.prefill, "prefill", "", prefillHelp)
	flags.StringVar(&f.gpu, "gpu", "", "accelerator of the prefill: "+strings.Join(model.GPUNames(), " "))
	flags.IntVar(&f.gpus, "gpus", 8, "accelerators of one prefill")
	flags.Float64Var(&f.mfu, "mfu", 0, "share of their peak that prefill reaches, 0 to 1 (default: the accelerator's usual share)")
	flags.BoolVar(&f.fp8, "gpu-fp8", false, "prefill computes in fp8")
}

// prefillEstimate is a prefill time that was computed, not measured.
type prefillEstimate struct {
	model.Prefill
	gpu   string
	basis string // its inputs, for people
}

// estimate reads the flags of a computed prefill of whole prompts.
func (f *prefillFlags) estimate(g payload.Geometry) (*prefillEstimate, error) {
	if f.gpu == "" {
		return nil, usagef("--prefill auto needs --gpu: one of %s", strings.Join(model.GPUNames(), ", "))
	}
	gpu, err := model.ParseGPU(f.gpu)
	if err != nil {
		return nil, usagef("--gpu: %w", err)
	}
	peak, usual, err := gpu.Peak(f.fp8)
	if err != nil {
		return nil, usagef("--gpu-fp8: %w", err)
	}
	p := model.Prefill{Parameters: g.Parameters, GPUs: f.gpus, PeakFLOPs: peak, MFU: f.mfu}
	for _, a := range g.Attention() {
		p.Attention = append(p.Attention, model.Attention(a))
	}
	utilization := "as given"
	if f.mfu == 0 {
		p.MFU = usual.Value
		utilization = fmt.Sprintf("(usual: %.2f to %.2f; give --mfu, or --prefill as measured)", usual.Low, usual.High)
	}
	if err := p.Validate(); err != nil {
		return nil, usagef("--gpu: %w", err)
	}
	return &prefillEstimate{p, gpu.Name, fmt.Sprintf("prefill: estimated for %d %s at %.0f TFLOP/s dense, utilization %.2f %s", f.gpus, gpu.Name, peak/1e12, p.MFU, utilization)}, nil
}

// note adds the estimate and its inputs to a run's configuration.
func (e *prefillEstimate) note(config map[string]string) {
	if e == nil {
		return
	}
	config["mfu"] = strconv.FormatFloat(e.MFU, 'g', -1, 64)
	config["prefill-estimate"] = e.basis
}

// prefillTimes is the time of a context's prefill, in seconds.
type prefillTimes struct {
	seconds  func(tokens int64) float64
	least    func(tokens int64) float64 // at the accelerators' peak; 0 if unknown
	estimate *prefillEstimate           // nil if the time was given, not computed
}

// times returns the prefill times, or nil if the flags set no prefill.
func (f *prefillFlags) times(g payload.Geometry) (*prefillTimes, error) {
	switch {
	case f.prefill != "" && f.prefill != "auto":
		d, err := time.ParseDuration(f.prefill)
		if err != nil || d <= 0 {
			return nil, usagef("--prefill %q is not a time such as 500ms, nor auto", f.prefill)
		}
		return &prefillTimes{
			seconds: func(int64) float64 { return d.Seconds() },
			least:   func(int64) float64 { return 0 },
		}, nil
	case f.prefill == "" && f.gpu == "":
		return nil, nil
	}
	e, err := f.estimate(g)
	if err != nil {
		return nil, err
	}
	return &prefillTimes{
		seconds:  func(tokens int64) float64 { return e.Seconds(tokens, 0) },
		least:    func(tokens int64) float64 { return e.LeastSeconds(tokens, 0) },
		estimate: e,
	}, nil
}
