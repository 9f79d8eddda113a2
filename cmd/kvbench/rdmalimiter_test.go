package main

import (
	"fmt"
	"path/filepath"
	"testing"

	"kvbench/results"
)

// TestRDMADescriptors: 4096 descriptors of 4 KiB over UCX's TCP, read, where each costs
// a request and its answer, take much longer than the same bytes in 16. Against a link
// as fast as those, the verdict names the descriptors, and the cost that it states is of
// the size of the difference.
func TestRDMADescriptors(t *testing.T) {
	needUCX(t)
	// A layer of llama-3.1-8b has 4 KiB a token: K and V of 4096 tokens are 16 MiB, in
	// blocks of 2 tokens 4096 of 4 KiB, in blocks of 512 tokens 16.
	run := func(block, link string) results.Cell {
		out := filepath.Join(t.TempDir(), "run.json")
		start(t, with([]string{"loopback"}, with(laneFlags("tcp", "get", "pull"), "--model", "llama-3.1-8b", "--layers", "0", "--context", "4K",
			"--layout", "paged", "--block-tokens", block, "--link", link, "--framing", "off", "--out", out)...)...).end(patience).want(t, exitDone)
		return readRun(t, out).Cells[0]
	}
	// What the machine does beside it only adds to a time: the fastest request counts.
	fastest := func(c results.Cell) float64 {
		h, err := c.Latency.Service.Histogram()
		if err != nil {
			t.Fatal(err)
		}
		return 1000 * h.Smallest(1).Seconds()
	}
	oneOfSix(t, func(int) string {
		few := run("512", "100Gbit/s")
		many := run("2", fmt.Sprintf("%.0fMB/s", float64(few.Bytes)/1000/fastest(few)))
		if many.Bytes != 16<<20 || many.Descriptors != 4096 || few.Bytes != 16<<20 || few.Descriptors != 16 {
			t.Fatalf("%d bytes in %d descriptors, %d in %d", many.Bytes, many.Descriptors, few.Bytes, few.Descriptors)
		}
		t.Logf("%s: %s; the fastest took %.3g ms, of 16 descriptors %.3g ms", many.Verdict.Limiter, many.Verdict.Evidence, fastest(many), fastest(few))
		if many.Verdict.Status != "fail" || many.Verdict.Against != "spec" || many.Verdict.Limiter != "descriptors" || few.Verdict.Limiter == "descriptors" {
			return fmt.Sprintf("4096 descriptors: %+v; 16: %+v", many.Verdict, few.Verdict)
		}
		var named float64 // ms
		if _, err := fmt.Sscanf(many.Verdict.Evidence, "4096 descriptors cost %f ms", &named); err != nil {
			return fmt.Sprintf("no cost: %s", many.Verdict.Evidence)
		}
		if less := fastest(many) - fastest(few); named < less/3 || named > 3*less {
			return fmt.Sprintf("in 16 descriptors the same bytes take %.3g ms less, not %.3g", less, named)
		}
		return ""
	})
}
