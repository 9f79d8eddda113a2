package main

import (
	"path/filepath"
	"strings"
	"testing"

	"kvbench/transport"
	"kvbench/transport/rdma"
	"kvbench/transport/staged"
)

// directly returns UCX with GPU memory that moves directly, for a command that is one of
// the sides.
func directly(sides, command string) []transport.Transport {
	if sides != "both" && sides != command {
		return transports()
	}
	return []transport.Transport{staged.Over(rdma.WithReachableGPUs())}
}

// overReachable are whole runs over UCX's shared memory, between GPU memory that UCX
// reaches as the host's, on the sides given.
func overReachable(t *testing.T, sides string) launch {
	t.Helper()
	needUCX(t)
	return withDouble(t, "CUDA_DOUBLE_REACHABLE=1", direct+"="+sides)
}

// TestDirectLoopback moves whole requests between the GPU memory of two processes that
// UCX is given, every byte checked.
func TestDirectLoopback(t *testing.T) {
	for op, direction := range map[string]string{"put": "push", "get": "pull"} {
		t.Run(direction, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(t.TempDir(), "run.json")
			args := with(with([]string{"loopback", "--memory", "cuda:1", "--verify", "full", "--out", out}, small...), laneFlags("shm", op, direction)...)
			got := overReachable(t, "both").start(t, args...).end(patience)
			got.want(t, exitDone)
			r := readRun(t, out)
			if c := r.Cells[0]; c.Verify.Checked == 0 || c.Verify.Mismatched != 0 {
				t.Errorf("verification %+v", c.Verify)
			}
			if r.Transport.GPUPath != "direct" || r.Transport.Memory != "cuda" || r.Transport.Staging != nil || r.Transport.Consumer.Staging != nil {
				t.Errorf("%q of %q memory, staging %+v and %+v", r.Transport.GPUPath, r.Transport.Memory, r.Transport.Staging, r.Transport.Consumer.Staging)
			}
			for side, p := range map[string]transport.Path{"producer": r.Transport.Path, "consumer": r.Transport.Consumer} {
				if p.Details["gpu"] != "cuda:1" {
					t.Errorf("the %s names GPU %v", side, p.Details["gpu"])
				}
			}
			if !strings.Contains(got.stdout, ", GPU memory directly") {
				t.Errorf("the table does not say how GPU memory moved:\n%s", got.stdout)
			}
		})
	}
}

// TestStagedForAReason: where one side, or both, cannot move GPU memory directly, it is
// staged, and the record and the table say whose doing that is.
func TestStagedForAReason(t *testing.T) {
	const why = "lane shm has no device that reaches GPU memory"
	for name, c := range map[string]struct {
		sides, op, reason string
	}{
		"no side":           {"neither", "put", why},
		"the producer only": {"loopback", "put", "the peer: " + why},
		"the consumer only": {"consumer", "put", why},
		"messages":          {"both", "am", "active messages are put in place by a CPU"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(t.TempDir(), "run.json")
			args := with(with([]string{"loopback", "--memory", "cuda:0", "--verify", "full", "--out", out}, small...), laneFlags("shm", c.op, "push")...)
			got := overReachable(t, c.sides).start(t, args...).end(patience)
			got.want(t, exitDone)
			r := readRun(t, out)
			if s := r.Transport.Staging; r.Transport.GPUPath != "staged" || s == nil || s.Reason != c.reason {
				t.Errorf("%q, staging %+v, want reason %q", r.Transport.GPUPath, s, c.reason)
			}
			if want := "GPU memory staged through host memory (" + c.reason + ")"; !strings.Contains(got.stdout, want) {
				t.Errorf("the table does not say %q:\n%s", want, got.stdout)
			}
		})
	}
}
