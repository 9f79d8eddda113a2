//go:build full

package main

import (
	"strings"
	"syscall"
	"testing"
)

// TestStopped: a stopped producer keeps its sockets open, and yet does not occupy the
// consumer for ever. Once it goes on, it receives the reason. Package bench proves the
// same in virtual time.
func TestStopped(t *testing.T) {
	for _, direction := range []string{"push", "pull"} {
		t.Run(direction, func(t *testing.T) {
			t.Parallel()
			at := afterRequests(3, direction)
			serving, addr := consumer(t)
			p := at.to(announce).start(t, with([]string{"producer", "--connect", addr, "--direction", direction}, endless...)...)
			p.reached(t, at)
			p.signal(syscall.SIGSTOP)
			why := serving.stderr.await(t, "0s") // 20 s without a word, or 10 s with reads outstanding
			if !strings.Contains(why, "the producer fell silent: no answer from the peer for 20s;") && !(direction == "pull" && strings.Contains(why, "nothing moved for 10s")) {
				t.Errorf("the consumer says %q", why)
			}
			goesOn(t, addr)
			p.signal(syscall.SIGCONT)
			p.end(promptly).want(t, exitFailed, "the consumer gave up")
		})
	}
}
