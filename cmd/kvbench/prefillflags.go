package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kvbench/model"
	"kvbench/payload"
)

// prefillFlags say how long a prefill takes.
type prefillFlags struct {
	prefill string
	gpu     string
	gpus    int
	mfu     float64
	fp8     bool
}

func (f *prefillFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.prefill, "prefill", "", "how long a prefill takes, such as 500ms, or auto: from --gpu")
	flags.StringVar(&f.gpu, "gpu", "", "accelerator of the prefill: "+strings.Join(model.GPUNames(), " "))
	flags.IntVar(&f.gpus, "gpus", 8, "accelerators of one prefill")
	flags.Float64Var(&f.mfu, "mfu", 0, "share of their peak that prefill reaches, 0 to 1 (default: the accelerator's usual share)")
	flags.BoolVar(&f.fp8, "gpu-fp8", false, "prefill computes in fp8")
}

// seconds returns a function from tokens to the prefill's seconds; nil where none is asked for.
func (f *prefillFlags) seconds(g payload.Geometry) (func(tokens int64) float64, string, error) {
	if f.prefill != "" && f.prefill != "auto" {
		d, err := time.ParseDuration(f.prefill)
		if err != nil || d <= 0 {
			return nil, "", usagef("--prefill %q is not a time such as 500ms, nor auto", f.prefill)
		}
		return func(int64) float64 { return d.Seconds() }, "", nil
	}
	if f.gpu == "" {
		if f.mfu != 0 || f.fp8 {
			return nil, "", usagef("--mfu and --gpu-fp8 need --gpu: one of %s", strings.Join(model.GPUNames(), ", "))
		}
		if f.prefill == "auto" {
			return nil, "", usagef("--prefill auto needs --gpu: one of %s", strings.Join(model.GPUNames(), ", "))
		}
		return nil, "", nil
	}
	gpu, err := model.ParseGPU(f.gpu)
	if err != nil {
		return nil, "", usagef("--gpu: %w", err)
	}
	peak, usual, err := gpu.Peak(f.fp8)
	if err != nil {
		return nil, "", usagef("--gpu-fp8: %w", err)
	}
	p := model.Prefill{
		Parameters: g.Parameters, Layers: g.AttentionLayers(), AttentionWidth: g.QueryHeads * g.HeadDim,
		GPUs: f.gpus, PeakFLOPs: peak, MFU: f.mfu,
	}
	note := fmt.Sprintf("prefill: %d %s at %.0f TFLOP/s dense, utilization %.2f as given", f.gpus, gpu.Name, peak/1e12, f.mfu)
	if f.mfu == 0 {
		p.MFU = usual.Value
		note = fmt.Sprintf("prefill: %d %s at %.0f TFLOP/s dense, utilization %.2f (usual: %.2f to %.2f; give --mfu, or --prefill as measured)", f.gpus, gpu.Name, peak/1e12, usual.Value, usual.Low, usual.High)
	}
	if err := p.Validate(); err != nil {
		return nil, "", usagef("--gpu: %w", err)
	}
	return func(tokens int64) float64 { return p.Seconds(tokens, 0) }, note, nil
}
