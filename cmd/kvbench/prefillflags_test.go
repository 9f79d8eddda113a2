package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestLoopbackPrefillAuto: the emulated prefill is the model's, and the record says
// that it is an estimate and of what. LLaMA-2-70B at 1024 and 2048 tokens is
// 141.56e12 and 285.87e12 operations; one layer is moved.
func TestLoopbackPrefillAuto(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "run.json")
	got := start(t, "loopback", "--model", "llama-2-70b", "--layers", "0", "--context", "1K,2K", "--requests", "2", "--warmup", "0", "--calibrate", "off",
		"--overlap", "layer", "--prefill", "auto", "--gpu", "h100", "--gpus", "8", "--out", out).end(patience)
	got.want(t, exitDone)
	if !strings.Contains(got.stdout, "prefill: estimated for 8 h100") {
		t.Errorf("the table does not say that the prefill is an estimate:\n%s", got.stdout)
	}
	run := readRun(t, out)
	for i, flops := range []float64{141.56e12, 285.87e12} {
		want := flops / (8 * 989e12 * 0.4)
		o := run.Cells[i].Overlap
		if o == nil || !within(o.PrefillSeconds, want, 1e-3) {
			t.Fatalf("%d tokens: overlap %+v, want a prefill of %.5g s", run.Cells[i].ContextTokens, o, want)
		}
		if s := float64(*run.Cells[i].Latency.Service.P50Ns) / 1e9; s < want {
			t.Errorf("%d tokens: a request took %.4g s under a prefill of %.4g", run.Cells[i].ContextTokens, s, want)
		}
	}
	for key, want := range map[string]string{"prefill": "auto", "gpu": "h100", "gpus": "8", "mfu": "0.4", "gpu-fp8": "false"} {
		if run.Config[key] != want {
			t.Errorf("config %s is %q, want %q", key, run.Config[key], want)
		}
	}
	if e := run.Config["prefill-estimate"]; !strings.Contains(e, "estimated for 8 h100 at 989 TFLOP/s dense, utilization 0.40") {
		t.Errorf("config prefill-estimate is %q", e)
	}
}
