package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"kvbench/internal/testenv"
	"kvbench/results"
)

// killed is the exit status of a process that a signal ended.
const killed = -1

// mid is a transfer in the middle of the second request.
const mid = layers + layers/2

// pointsOf lists the points at which a side is killed, in the order of a run in the
// given direction.
func pointsOf(side, direction string) (points []point) {
	names := []point{{name: "dial", n: 1}, {name: "register", n: 1}}
	if side == "consumer" {
		names = []point{{name: "listen", n: 1}, {name: "accept", n: 1}, {name: "register", n: 1}}
	}
	if (side == "producer") == (direction == "push") { // the initiator
		names = append(names, point{name: "import", n: 1}, point{name: "post", n: 1}, point{name: "completion", n: 1}, point{name: "post", n: mid})
	} else {
		names = append(names, point{name: "advertise", n: 1}, point{name: "notice", n: 1}, point{name: "notice", n: mid})
	}
	for _, p := range append(names, point{name: "close", n: 1}) {
		points = append(points, point{side, p.name, p.n})
	}
	return points
}

// workload returns the flags of a run that does not end before the point.
func (p point) workload() []string {
	if p.name == "close" {
		return small
	}
	return endless
}

// wholeOrMarked checks that nobody can take a result for more than it is: there
// is none, or it says that it is incomplete.
func wholeOrMarked(t *testing.T, path string) {
	t.Helper()
	r, err := results.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	if err != nil {
		t.Errorf("half a result: %v", err)
		return
	}
	if r.Complete || r.Incomplete == "" {
		t.Errorf("a run that was cut off is marked complete")
	}
	kvbench(t, "check", path).want(t, exitFailed, "ended early")
}

// survives checks a consumer after its producer was killed: it serves on, and there is no
// result of the run that was cut off.
func survives(t *testing.T, serving *process, addr, out string, lane ...string) {
	t.Helper()
	select {
	case <-serving.ended:
		t.Fatalf("the consumer died with the producer:\n%s", serving.stderr.text())
	default:
	}
	if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the killed producer's result is there: %v", err)
	}
	goesOn(t, addr, lane...)
}

// gaveUp checks a producer after its consumer was killed: it returns in time, with an
// error, and leaves nothing that is half written.
func gaveUp(t *testing.T, p *process, out string) {
	t.Helper()
	p.end(testenv.Slowdown*10*time.Second).want(t, exitFailed)
	wholeOrMarked(t, out)
	if left := unfinished(t, filepath.Dir(out)); len(left) > 0 {
		t.Errorf("the producer left %v", left)
	}
	noneLeft(t)
}

// hadAll checks a producer after its consumer was killed when the run was done.
func hadAll(t *testing.T, p *process, out string) {
	t.Helper()
	p.end(testenv.Slowdown*10*time.Second).want(t, exitDone)
	if r := readRun(t, out); !r.Complete {
		t.Error("the run was done and is marked incomplete")
	}
	noneLeft(t)
}

// killProducerAt kills a producer at a point, and expects its consumer to serve on.
func killProducerAt(t *testing.T, at point, serving *process, addr string, lane []string, args ...string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "run.json")
	args = with(with(with([]string{"producer", "--connect", addr, "--out", out}, at.workload()...), lane...), args...)
	at.to(die).start(t, args...).end(patience).want(t, killed)
	survives(t, serving, addr, out, lane...)
}

// killConsumerAt kills a consumer at a point, and expects its producer to return.
func killConsumerAt(t *testing.T, at point, lane []string, args ...string) {
	t.Helper()
	serving, addr := at.to(die).consumer(t)
	out := filepath.Join(t.TempDir(), "run.json")
	p := start(t, with(with(with([]string{"producer", "--connect", addr, "--out", out}, at.workload()...), lane...), args...)...)
	serving.end(patience).want(t, killed)
	if at.name == "close" {
		hadAll(t, p, out)
		return
	}
	gaveUp(t, p, out)
}

// TestKill kills one of the two processes at each point of the transport's contract.
func TestKill(t *testing.T) {
	for _, direction := range []string{"push", "pull"} {
		flags := []string{"--direction", direction}
		t.Run("producer of a "+direction, func(t *testing.T) {
			t.Parallel()
			serving, addr := consumer(t)
			for _, at := range pointsOf("producer", direction) {
				t.Run(at.String(), func(t *testing.T) { killProducerAt(t, at, serving, addr, nil, flags...) })
			}
		})
		t.Run("consumer of a "+direction, func(t *testing.T) {
			t.Parallel()
			for _, at := range pointsOf("consumer", direction) {
				t.Run(at.String(), func(t *testing.T) { killConsumerAt(t, at, nil, flags...) })
			}
		})
	}
}

// TestRDMAKill does so over UCX, with two connections. UCX can be told that its peer is
// gone on some lanes only, and 1.13 aborts the process in some of the cases in which an
// endpoint ends that still has something to send; neither may show. The points are dealt
// out to the ways of moving data in a direction; in the long run each way has all.
func TestRDMAKill(t *testing.T) {
	needUCX(t)
	ways := map[string]int{} // that the points of a direction are dealt out to
	for _, c := range overUCX {
		ways[c.direction]++
	}
	dealt := map[string]int{}
	for _, c := range overUCX {
		turn := dealt[c.direction]
		dealt[c.direction]++
		mine := func(i int) bool { return testenv.Full || i%ways[c.direction] == turn }
		lane := laneFlags(c.lane, c.op, c.direction)
		more := []string{"--verify", "none", "--concurrency", "2"}
		t.Run(c.lane+" "+c.op, func(t *testing.T) {
			t.Parallel()
			serving, addr := consumer(t)
			producers := pointsOf("producer", c.direction)
			for i, at := range producers {
				if mine(i) {
					t.Run(at.String(), func(t *testing.T) { killProducerAt(t, at, serving, addr, lane, more...) })
				}
			}
			serving.signal(os.Interrupt)
			serving.end(promptly).want(t, exitDone)
			for i, at := range pointsOf("consumer", c.direction) {
				if mine(len(producers) + i) {
					t.Run(at.String(), func(t *testing.T) { killConsumerAt(t, at, lane, more...) })
				}
			}
		})
	}
}

// TestKillAtMessages kills one of the two processes while a message of the control channel
// has left one side and has not reached the other: from before they have greeted to after
// the run. In the long run each message is tried in both directions.
func TestKillAtMessages(t *testing.T) {
	type message struct {
		from, kind string
		n          int
	}
	for i, direction := range []string{"push", "pull"} {
		messages := []message{
			{"producer", "hello", 1}, {"consumer", "hello", 1}, {"producer", "proof", 1}, {"consumer", "proof", 1},
			{"producer", "plan", 1}, {"consumer", "accept", 1}, {"consumer", "region", 1}, {"consumer", "ready", 1},
			{"producer", "phase", 1}, {"consumer", "phase_ready", 2}, {"consumer", "checked", 2},
			{"producer", "phase_end", 1}, {"consumer", "phase_done", 2}, {"producer", "bye", 1},
		}
		if direction == "pull" {
			messages[6].from = "producer"
			messages = append(messages, message{"consumer", "joined", 1}, message{"producer", "request", 2})
		}
		t.Run(direction, func(t *testing.T) {
			t.Parallel()
			serving, addr := consumer(t) // it outlives the producers
			for j, m := range messages {
				if !testenv.Full && m.kind != "joined" && m.kind != "request" && j%2 != i {
					continue
				}
				workload := endless
				if slices.Contains([]string{"phase_end", "phase_done", "bye"}, m.kind) {
					workload = small
				}
				args := with(workload, "--direction", direction)
				t.Run(fmt.Sprintf("producer at the %s's %s %d", m.from, m.kind, m.n), func(t *testing.T) {
					r := newRelay(t, addr, m.from, m.kind, m.n)
					out := filepath.Join(t.TempDir(), "run.json")
					p := start(t, with([]string{"producer", "--connect", r.addr, "--out", out}, args...)...)
					r.await(t)
					p.signal(os.Kill)
					p.end(promptly)
					survives(t, serving, addr, out)
				})
				t.Run(fmt.Sprintf("consumer at the %s's %s %d", m.from, m.kind, m.n), func(t *testing.T) {
					serving, own := consumer(t)
					r := newRelay(t, own, m.from, m.kind, m.n)
					out := filepath.Join(t.TempDir(), "run.json")
					p := start(t, with([]string{"producer", "--connect", r.addr, "--out", out}, args...)...)
					r.await(t)
					serving.signal(os.Kill)
					serving.end(promptly)
					if m.kind == "bye" {
						hadAll(t, p, out)
						return
					}
					gaveUp(t, p, out)
				})
			}
		})
	}
}

// childOf waits for the consumer that loopback started and returns its process id.
func childOf(t *testing.T, p *process) int {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		for _, found := range alive(t) {
			id, command, _ := strings.Cut(found, " ")
			if n, err := strconv.Atoi(id); err == nil && n != p.cmd.Process.Pid && strings.Contains(command, " consumer ") {
				return n
			}
		}
	}
	t.Fatal("loopback started no consumer")
	return 0
}

// TestKillLoopback: neither of its two processes outlives the other.
func TestKillLoopback(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skipf("needs /proc to see processes, which %s has not", runtime.GOOS)
	}
	directions := []string{"push"}
	if testenv.Full {
		directions = append(directions, "pull")
	}
	for _, direction := range directions {
		for i, at := range append(pointsOf("producer", direction), pointsOf("consumer", direction)...) {
			if !testenv.Full && i%2 == 1 {
				continue
			}
			t.Run(fmt.Sprintf("%v of a %s", at, direction), func(t *testing.T) {
				t.Parallel()
				out := filepath.Join(t.TempDir(), "run.json")
				p := at.to(die).start(t, with(with([]string{"loopback", "--direction", direction}, at.workload()...), "--out", out)...)
				switch {
				case at.side == "producer":
					p.end(patience).want(t, killed)
					noneLeft(t)
				case at.name == "close":
					hadAll(t, p, out)
				default:
					gaveUp(t, p, out)
				}
			})
		}
	}
	// Before its first point the consumer listens for a producer.
	t.Run("consumer before a point", func(t *testing.T) {
		t.Parallel()
		out := filepath.Join(t.TempDir(), "run.json")
		p := start(t, with(append([]string{"loopback"}, endless...), "--out", out)...)
		if err := syscall.Kill(childOf(t, p), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		gaveUp(t, p, out)
	})
}
