//go:build timing

package main

import (
	"fmt"
	"testing"
)

// TestRDMADescriptorsAreNamed: 4096 descriptors of 4 KiB over UCX's TCP, read, where each
// costs a request and its answer, take much longer than the same bytes in 16. Runs of both
// alternate, each run of many against a link as fast as the few before it. Most of the
// verdicts name the descriptors, and the cost that they state is of the size of the
// difference.
func TestRDMADescriptorsAreNamed(t *testing.T) {
	needUCX(t)
	const rounds = 5
	var slower, stated []float64
	named := 0
	for range rounds {
		few, _ := inDescriptors(t, "512", "--link", "100Gbit/s", "--framing", "off")
		alone := float64(*few.Latency.Service.P50Ns) / 1e6 // ms
		many, _ := inDescriptors(t, "2", "--link", fmt.Sprintf("%.0fMB/s", float64(few.Bytes)/1000/alone), "--framing", "off")
		took := float64(*many.Latency.Service.P50Ns) / 1e6
		t.Logf("%s: %s; median %.3g ms, of 16 descriptors %.3g ms, %s", many.Verdict.Limiter, many.Verdict.Evidence, took, alone, few.Verdict.Limiter)
		slower = append(slower, took/alone)
		var cost float64 // ms
		if v := many.Verdict; v.Status == "fail" && v.Against == "spec" && v.Limiter == "descriptors" && few.Verdict.Limiter != "descriptors" {
			if _, err := fmt.Sscanf(v.Evidence, "4096 descriptors cost %f ms", &cost); err != nil {
				t.Errorf("no cost: %s", v.Evidence)
			}
			named++
			stated = append(stated, cost/(took-alone))
		}
	}
	if got := median(slower); got < 1.5 {
		t.Errorf("4096 descriptors take %.3g times as long as 16", got)
	}
	if named <= rounds/2 {
		t.Fatalf("%d of %d verdicts name the descriptors", named, rounds)
	}
	if got := median(stated); got < 1./3 || got > 3 {
		t.Errorf("the stated cost is %.3g of the difference", got)
	}
}
