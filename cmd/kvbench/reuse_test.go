package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kvbench/results"
)

// calibrationOf writes a record whose calibration was taken over a lane, pushing
// with one stream: 50 µs, 1 µs a descriptor and 2 GB/s, timed three times each.
func calibrationOf(t *testing.T, lane string) string {
	t.Helper()
	run := &results.Run{Schema: results.Schema, Complete: true, Fit: &results.Fit{
		Taken: &results.Conditions{Transport: "tcp", Lane: lane, Direction: "push", Streams: 1, Verify: "stamp", Producer: "elsewhere", Consumer: "elsewhere"},
	}}
	for _, bytes := range []int64{16 << 10, 256 << 10, 4 << 20, 64 << 20} {
		for _, n := range [][2]int{{1, 1}, {1, 512}, {8, 8}, {64, 512}} {
			for range 3 {
				run.Fit.Samples = append(run.Fit.Samples, results.Sample{Transfers: n[0], Descriptors: n[1], Bytes: bytes, Seconds: 50e-6 + 1e-6*float64(n[1]) + float64(bytes)/2e9})
			}
		}
	}
	b, err := results.Encode(run)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "earlier.json")
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestCalibrationReused: an earlier calibration serves a run over the same lane,
// with a note of what else differs, and no other.
func TestCalibrationReused(t *testing.T) {
	t.Parallel()
	run := func(file string, args ...string) output {
		args = append([]string{"loopback", "--model", "qwen3-0.6b", "--context", "16", "--requests", "3", "--calibrate", file}, args...)
		return start(t, args...).end(patience)
	}
	same := calibrationOf(t, "tcp/lo")
	got := run(same, "--streams", "2")
	got.want(t, exitDone)
	for _, note := range []string{"streams was 1 when the calibration was taken, and is 2 here", "producer was elsewhere"} {
		got.wantPrinted(t, note)
	}
	run(same, "--direction", "pull").want(t, exitUsage, `direction "push", here "pull"`, "--calibrate auto")
	run(calibrationOf(t, "tcp/eth7"), "--requests", "3").want(t, exitUsage, `lane "tcp/eth7", here "tcp/lo"`, "--calibrate auto")
}

// wantPrinted holds what went to standard output against a part of it.
func (o output) wantPrinted(t *testing.T, part string) {
	t.Helper()
	if !strings.Contains(o.stdout, part) {
		t.Errorf("%q is not in what was printed:\n%s", part, o.stdout)
	}
}
