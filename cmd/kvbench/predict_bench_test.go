package main

import (
	"bytes"
	"context"
	"testing"
)

// heavyPredictions are the invocations of predict that have most to work out, the
// context's sweep over three links and a fit most of all. RUN stands for a record
// with a calibration.
var heavyPredictions = map[string][]string{
	"fit":             {"--model", "llama-3.1-8b", "--fit", "RUN"},
	"bandwidth sweep": {"--sweep", "bandwidth", "--gpu", "h100", "--saved", "20%", "--layout", "paged"},
	"context sweep":   {"--sweep", "context", "--gpu", "h100", "--saved", "20%", "--overlap", "layer", "--rate", "10/s", "--link", "100gbe,ib-ndr,nvlink4", "--fit", "RUN"},
}

// heavyPrediction is the command line of one of them.
func heavyPrediction(name, record string) []string {
	args := []string{"predict"}
	for _, a := range heavyPredictions[name] {
		if a == "RUN" {
			a = record
		}
		args = append(args, a)
	}
	return args
}

func BenchmarkPredict(b *testing.B) {
	record := calibratedRun(b, steady)
	for name := range heavyPredictions {
		args := heavyPrediction(name, record)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var out, err bytes.Buffer
				if status := run(context.Background(), args, nil, &out, &err); status != exitDone {
					b.Fatalf("exit status %d: %s", status, err.String())
				}
			}
		})
	}
}
