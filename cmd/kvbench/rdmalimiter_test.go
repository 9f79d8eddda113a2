package main

import (
	"path/filepath"
	"testing"

	"kvbench/results"
)

// inDescriptors reads 16 MiB over UCX's TCP in blocks of some tokens and returns the
// record's cell and name. A layer of llama-3.1-8b has 4 KiB a token: K and V of 4096 tokens are
// 4096 descriptors of 4 KiB in blocks of 2 tokens, and 16 in blocks of 512.
func inDescriptors(t *testing.T, block string, args ...string) (c results.Cell, record string) {
	t.Helper()
	record = filepath.Join(t.TempDir(), "run.json")
	start(t, with(with([]string{"loopback"}, with(laneFlags("tcp", "get", "pull"), "--model", "llama-3.1-8b", "--layers", "0", "--context", "4K",
		"--layout", "paged", "--block-tokens", block, "--out", record)...), args...)...).end(patience).want(t, exitDone)
	c = readRun(t, record).Cells[0]
	if want := map[string]int{"2": 4096, "512": 16}[block]; c.Bytes != 16<<20 || c.Descriptors != want {
		t.Fatalf("%d bytes in %d descriptors, want %d in %d", c.Bytes, c.Descriptors, 16<<20, want)
	}
	return c, record
}

// TestRDMADescriptors: the same bytes move in few descriptors and in many. That many are
// named for what they cost is in TestRDMADescriptorsAreNamed.
func TestRDMADescriptors(t *testing.T) {
	needUCX(t)
	for _, block := range []string{"512", "2"} {
		c, _ := inDescriptors(t, block, "--calibrate", "off", "--requests", "2", "--warmup", "0", "--verify", "full")
		if c.Verify.Checked == 0 || c.Verify.Mismatched != 0 || c.Requests != 2 {
			t.Errorf("blocks of %s tokens: %d requests, verification %+v", block, c.Requests, c.Verify)
		}
	}
}
