package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kvbench/transport/rdma"
)

// needUCX skips a test where this build has no UCX or finds none, and fails it if
// KVBENCH_REQUIRE names rdma.
func needUCX(t *testing.T) {
	t.Helper()
	if err := rdma.New().Probe(t.Context()); err != nil {
		skipOrFail(t, "rdma", err.Error())
	}
}

// overUCX are the ways of moving data on the lanes that every host has.
var overUCX = []struct {
	lane, op, direction string
	path                string // what the result must call the protocol
	emulated            bool
}{
	{"shm", "put", "push", "put", false},
	{"shm", "am", "push", "active messages", false},
	{"shm", "get", "pull", "get", false},
	{"tcp", "put", "push", "put emulated by active messages", true},
	{"tcp", "am", "push", "active messages", false},
	{"tcp", "get", "pull", "get emulated by active messages", true},
}

// laneFlags are the flags of one of them.
func laneFlags(lane, op, direction string) []string {
	return []string{"--transport", "rdma", "--lane", lane, "--rdma-op", op, "--direction", direction}
}

// TestRDMALoopback runs two processes over each lane and operation, with every
// byte checked, and holds what the result says of the path against what was asked.
func TestRDMALoopback(t *testing.T) {
	needUCX(t)
	belongs := map[string][]string{"shm": {"posix", "sysv", "cma"}, "tcp": {"tcp"}}
	for _, c := range overUCX {
		t.Run(c.lane+" "+c.op, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "run.json")
			args := with(with([]string{"loopback", "--verify", "full", "--out", out}, small...), laneFlags(c.lane, c.op, c.direction)...)
			start(t, args...).end(patience).want(t, exitDone)
			r := readRun(t, out)
			if !r.Complete || len(r.Cells) != 1 {
				t.Fatalf("complete %v, %d cells", r.Complete, len(r.Cells))
			}
			// qwen3-0.6b at 16 tokens: 28 layers x 8 heads x 128 x 2 (K, V) x 2 bytes x 16.
			const bytes = 28 * 8 * 128 * 2 * 2 * 16
			if cell := r.Cells[0]; cell.Bytes != bytes || cell.Requests != 3 || cell.Verify.Checked == 0 || cell.Verify.Mismatched != 0 {
				t.Errorf("%d requests of %d bytes, verification %+v", cell.Requests, cell.Bytes, cell.Verify)
			}
			lane, _, _ := strings.Cut(r.Transport.Lane, "/")
			if !slices.Contains(belongs[c.lane], lane) || r.Transport.Protocol != c.path || r.Transport.Emulated != c.emulated {
				t.Errorf("the result names lane %q by %q, emulated %v; want one of %v by %q, emulated %v",
					r.Transport.Lane, r.Transport.Protocol, r.Transport.Emulated, belongs[c.lane], c.path, c.emulated)
			}
		})
	}
}

// TestRDMAKill kills one of the two processes over UCX, at a random moment from
// before it has connected to the middle of its transfers. UCX can be told that its
// peer is gone on some lanes only, and 1.13 aborts the process in some of the cases
// in which an endpoint ends that still has something to send; neither may show.
func TestRDMAKill(t *testing.T) {
	needUCX(t)
	for _, c := range overUCX {
		args := with(with(endless, "--verify", "none", "--concurrency", "2"), laneFlags(c.lane, c.op, c.direction)...)
		t.Run(c.lane+" "+c.op, func(t *testing.T) {
			moment := moments(t)
			serving, addr := consumer(t)
			for range 3 {
				killProducer(t, serving, addr, moment(slow*time.Second), args)
				goesOn(t, addr, laneFlags(c.lane, c.op, c.direction)...)
			}
			for range 2 {
				killConsumer(t, moment(slow*time.Second), args)
			}
			serving.signal(os.Interrupt)
			serving.end(promptly).want(t, exitDone)
		})
	}
}

// killProducer kills a producer some time after its start, and expects its
// consumer to live on.
func killProducer(t *testing.T, serving *process, addr string, at time.Duration, args []string) {
	t.Helper()
	p := start(t, append([]string{"producer", "--connect", addr}, args...)...)
	time.Sleep(at)
	p.signal(os.Kill)
	p.end(promptly)
	select {
	case <-serving.ended:
		t.Fatalf("the consumer died with the producer that was killed after %v:\n%s", at, serving.stderr.text())
	default:
	}
}

// killConsumer kills a consumer some time after its producer's start, and expects
// the producer to end within 10 s, with an error.
func killConsumer(t *testing.T, at time.Duration, args []string) {
	t.Helper()
	serving, addr := consumer(t)
	out := filepath.Join(t.TempDir(), "run.json")
	p := start(t, append([]string{"producer", "--connect", addr, "--out", out}, args...)...)
	time.Sleep(at)
	serving.signal(os.Kill)
	serving.end(promptly)
	p.end(slow*10*time.Second).want(t, exitFailed)
	wholeOrMarked(t, out)
}
