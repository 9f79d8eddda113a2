package main

import (
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"
)

// heavyPredictions are the invocations of predict that have most to work out, the
// context's sweep over three links and a fit most of all. RUN stands for a record
// with a calibration. Each has a budget of allocations, half as many again as it makes.
var heavyPredictions = map[string]struct {
	args        []string
	allocations uint64
}{
	"fit":             {[]string{"--model", "llama-3.1-8b", "--fit", "RUN"}, 20_000},
	"bandwidth sweep": {[]string{"--sweep", "bandwidth", "--gpu", "h100", "--saved", "20%", "--layout", "paged"}, 50_000},
	"context sweep":   {[]string{"--sweep", "context", "--gpu", "h100", "--saved", "20%", "--overlap", "layer", "--rate", "10/s", "--link", "100gbe,ib-ndr,nvlink4", "--fit", "RUN"}, 45_000},
	"unlike layers":   {[]string{"--model", "gpt-oss-120b", "--sweep", "context", "--gpu", "h100", "--saved", "20%", "--overlap", "layer", "--rate", "10/s", "--link", "100gbe,ib-ndr,nvlink4", "--fit", "RUN"}, 50_000},
	"rank pairs":      {[]string{"--model", "deepseek-v3", "--pp", "60", "--pp-decode", "59", "--tp", "8", "--tp-decode", "8", "--gpu", "h100"}, 5_000},
}

// heavyPrediction is the command line of one of them.
func heavyPrediction(name, record string) []string {
	args := []string{"predict"}
	for _, a := range heavyPredictions[name].args {
		if a == "RUN" {
			a = record
		}
		args = append(args, a)
	}
	return args
}

// processorTime runs a command line in a process of its own and returns the processor
// time that it took, user and system.
func processorTime(t testing.TB, args ...string) time.Duration {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...) // TestMain made it kvbench
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

// TestPredictAllocates: a prediction works out sizes and fits once, not once a row or a
// step of a search. TestPredictIsQuick compares processor times, and BenchmarkPredict
// measures them.
func TestPredictAllocates(t *testing.T) {
	record := calibratedRun(t, steady)
	for name, c := range heavyPredictions {
		args := heavyPrediction(name, record)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		kvbench(t, args...).want(t, exitDone)
		runtime.ReadMemStats(&after)
		if n := after.Mallocs - before.Mallocs; n > c.allocations {
			t.Errorf("%s: %d allocations, more than %d, for %v", name, n, c.allocations, args)
		}
	}
}

func BenchmarkPredict(b *testing.B) {
	record := calibratedRun(b, steady)
	for name := range heavyPredictions {
		args := heavyPrediction(name, record)
		b.Run(name, func(b *testing.B) {
			var spent time.Duration
			for b.Loop() {
				spent += processorTime(b, args...)
			}
			b.ReportMetric(spent.Seconds()*1000/float64(b.N), "cpu-ms/op")
		})
	}
}
