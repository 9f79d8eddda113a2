//go:build full

package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"kvbench/internal/testenv"
)

var seed = flag.Uint64("seed", 0, "of the random moments at which processes are killed; 0 draws one")

// moments draws random moments and logs their seed.
func moments(t *testing.T) func(most time.Duration) time.Duration {
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("again with: go test -tags full,ucx ./cmd/kvbench -run '^%s$' -seed %d", t.Name(), s)
	r := rand.New(rand.NewPCG(s, 0))
	return func(most time.Duration) time.Duration { return time.Duration(r.Int64N(int64(most))) }
}

// most is when a random moment may be, from the start of a process: from before it has
// listened or connected to the middle of a run.
const most = testenv.Slowdown * 600 * time.Millisecond

// killProducerAfter kills a producer some time after its start, and expects its
// consumer to serve on.
func killProducerAfter(t *testing.T, at time.Duration, serving *process, addr string, lane, args []string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "run.json")
	p := start(t, with(with([]string{"producer", "--connect", addr, "--out", out}, args...), lane...)...)
	time.Sleep(at)
	p.signal(os.Kill)
	p.end(promptly)
	survives(t, serving, addr, out, lane...)
}

// killConsumerAfter kills a consumer some time after its producer's start, and expects
// the producer to return.
func killConsumerAfter(t *testing.T, at time.Duration, lane, args []string) {
	t.Helper()
	serving, addr := consumer(t)
	out := filepath.Join(t.TempDir(), "run.json")
	p := start(t, with(with([]string{"producer", "--connect", addr, "--out", out}, args...), lane...)...)
	time.Sleep(at)
	serving.signal(os.Kill)
	serving.end(promptly)
	gaveUp(t, p, out)
}

// TestKillAtRandom kills one of the two processes at a random moment.
func TestKillAtRandom(t *testing.T) {
	moment := moments(t)
	serving, addr := consumer(t) // it outlives the producers
	for i := range 40 {
		direction := []string{"push", "pull"}[i%2]
		at := moment(most)
		args := with(endless, "--direction", direction)
		if i/2%2 == 0 {
			t.Run(fmt.Sprintf("producer of a %s after %v", direction, at), func(t *testing.T) { killProducerAfter(t, at, serving, addr, nil, args) })
		} else {
			t.Run(fmt.Sprintf("consumer of a %s after %v", direction, at), func(t *testing.T) { killConsumerAfter(t, at, nil, args) })
		}
	}
}

// TestRDMAKillAtRandom does so over UCX.
func TestRDMAKillAtRandom(t *testing.T) {
	needUCX(t)
	moment := moments(t)
	for _, c := range overUCX {
		lane := laneFlags(c.lane, c.op, c.direction)
		args := with(endless, "--verify", "none", "--concurrency", "2")
		var at [8]time.Duration
		for i := range at {
			at[i] = moment(most)
		}
		t.Run(c.lane+" "+c.op, func(t *testing.T) {
			t.Parallel()
			serving, addr := consumer(t)
			for _, at := range at[:4] {
				t.Run(fmt.Sprintf("producer after %v", at), func(t *testing.T) { killProducerAfter(t, at, serving, addr, lane, args) })
			}
			for _, at := range at[4:] {
				t.Run(fmt.Sprintf("consumer after %v", at), func(t *testing.T) { killConsumerAfter(t, at, lane, args) })
			}
		})
	}
}

// TestKillLoopbackAtRandom does so with loopback.
func TestKillLoopbackAtRandom(t *testing.T) {
	moment := moments(t)
	for i := range 12 {
		at := moment(most)
		victim := []string{"parent", "consumer"}[i%2]
		t.Run(fmt.Sprintf("%s after %v", victim, at), func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "run.json")
			p := start(t, with(append([]string{"loopback"}, endless...), "--out", out)...)
			child := childOf(t, p)
			time.Sleep(at)
			if victim == "parent" {
				p.signal(os.Kill)
				p.end(promptly)
				noneLeft(t)
				return
			}
			if err := syscall.Kill(child, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			gaveUp(t, p, out)
		})
	}
}
