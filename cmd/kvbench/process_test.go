package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"kvbench/internal/testenv"
	"kvbench/results"
)

var seed = flag.Uint64("seed", 0, "of the random moments at which processes are killed; 0 draws one")

// moments draws random moments, whose seed a failure tells.
func moments(t *testing.T) func(most time.Duration) time.Duration {
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("again with: go test ./cmd/kvbench -run '^%s$' -seed %d", t.Name(), s)
	r := rand.New(rand.NewPCG(s, 0))
	return func(most time.Duration) time.Duration { return time.Duration(r.Int64N(int64(most))) }
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

// TestKill kills one of the two processes at a random moment, from before it has
// listened or connected to the middle of a run.
func TestKill(t *testing.T) {
	moment := moments(t)
	_, addr := consumer(t) // of which producers are killed
	for i := range 20 {
		direction := []string{"push", "pull"}[i%2]
		victim := []string{"producer", "consumer"}[i/2%2]
		out := filepath.Join(t.TempDir(), "run.json")
		args := with(endless, "--direction", direction, "--out", out)
		at := moment(300 * time.Millisecond)
		t.Run(fmt.Sprintf("%s of a %s after %v", victim, direction, at.Round(time.Millisecond)), func(t *testing.T) {
			if victim == "producer" {
				p := start(t, append([]string{"producer", "--connect", addr}, args...)...)
				time.Sleep(at)
				p.signal(os.Kill)
				p.end(promptly)
				if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("the killed producer's result is there: %v", err)
				}
				goesOn(t, addr)
				return
			}
			serving, own := consumer(t)
			p := start(t, append([]string{"producer", "--connect", own}, args...)...)
			time.Sleep(at)
			serving.signal(os.Kill)
			serving.end(promptly)
			p.end(promptly).want(t, exitFailed)
			wholeOrMarked(t, out)
			if left := unfinished(t, filepath.Dir(out)); len(left) > 0 {
				t.Errorf("the producer left %v", left)
			}
			noneLeft(t)
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
	moment := moments(t)
	for i := range 6 {
		victim := []string{"parent", "consumer"}[i%2]
		t.Run(fmt.Sprintf("%s %d", victim, i), func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "run.json")
			p := start(t, with(append([]string{"loopback"}, endless...), "--out", out)...)
			child := childOf(t, p)
			time.Sleep(moment(300 * time.Millisecond))
			if victim == "parent" {
				p.signal(os.Kill)
				p.end(promptly)
			} else {
				if err := syscall.Kill(child, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				p.end(promptly).want(t, exitFailed)
				wholeOrMarked(t, out)
				if left := unfinished(t, filepath.Dir(out)); len(left) > 0 {
					t.Errorf("loopback left %v", left)
				}
			}
			noneLeft(t)
		})
	}
}

// interrupted checks what is kept of a run that was stopped in the middle.
func interrupted(t *testing.T, got output, out string) {
	t.Helper()
	got.want(t, exitFailed, "interrupted; what was measured until then is printed, marked as incomplete, and kept in "+out+"\n")
	r := readRun(t, out)
	c := r.Cells[0]
	if r.Complete || r.Incomplete != "interrupted" || c.Complete || c.Verdict.Status != "fail" {
		t.Errorf("complete %v (%q), cell %v with verdict %q", r.Complete, r.Incomplete, c.Complete, c.Verdict.Status)
	}
	if c.Requests == 0 || c.Latency.Service.Count != c.Requests || c.Goodput == 0 || c.Verify.Mismatched != 0 {
		t.Errorf("%d requests kept, %d of them timed, %g B/s, verification %+v", c.Requests, c.Latency.Service.Count, c.Goodput, c.Verify)
	}
	if !strings.Contains(got.stdout, "INCOMPLETE") {
		t.Errorf("the table does not say so:\n%s", got.stdout)
	}
	if left := unfinished(t, filepath.Dir(out)); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// intoTheRun waits until requests are measured, also on a busy machine.
func intoTheRun() { time.Sleep(testenv.Slowdown * 3 * time.Second) }

// TestInterrupt: Ctrl-C ends a run in order and keeps what was measured.
func TestInterrupt(t *testing.T) {
	for _, direction := range []string{"push", "pull"} {
		for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
			t.Run(fmt.Sprintf("producer %s %v", direction, signal), func(t *testing.T) {
				t.Parallel()
				serving, addr := consumer(t)
				out := filepath.Join(t.TempDir(), "run.json")
				p := start(t, with(append([]string{"producer", "--connect", addr}, endless...), "--direction", direction, "--out", out)...)
				serving.stderr.await(t, "tcp "+direction)
				intoTheRun()
				p.signal(signal)
				interrupted(t, p.end(promptly), out)
				goesOn(t, addr)
			})
		}
		t.Run("loopback "+direction, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(t.TempDir(), "run.json")
			p := start(t, with(append([]string{"loopback"}, endless...), "--direction", direction, "--out", out)...)
			intoTheRun()
			p.signal(os.Interrupt)
			interrupted(t, p.end(promptly), out)
			noneLeft(t)
		})
	}
}

// TestInterruptKeepsNothing: without a file to keep it in, nothing is said to be kept.
func TestInterruptKeepsNothing(t *testing.T) {
	t.Parallel()
	p := start(t, with([]string{"loopback"}, endless...)...)
	intoTheRun()
	p.signal(os.Interrupt)
	got := p.end(promptly)
	got.want(t, exitFailed, "interrupted; what was measured until then is printed, marked as incomplete\n")
	if !strings.Contains(got.stdout, "INCOMPLETE: interrupted\n") {
		t.Errorf("what was measured is not printed:\n%s", got.stdout)
	}
}

// TestInterruptEarly: before anything was measured there is nothing to keep.
func TestInterruptEarly(t *testing.T) {
	if testenv.Race {
		t.Skip("memory of a GiB takes the race detector longer to fill than this test waits; the build without it runs this")
	}
	out := filepath.Join(t.TempDir(), "run.json")
	serving, addr := consumer(t)
	// The model takes a while to be filled in, so the signal comes first.
	p := start(t, "producer", "--connect", addr, "--context", "4K", "--warmup", "100", "--out", out)
	serving.stderr.await(t, "tcp push")
	p.signal(os.Interrupt)
	p.end(promptly).want(t, exitFailed, "interrupted")
	wholeOrMarked(t, out)
	goesOn(t, addr)
}

// TestSecondInterrupt ends what the first has not: here a consumer that is
// stopped while its producer is, and so cannot say goodbye.
func TestSecondInterrupt(t *testing.T) {
	serving, addr := consumer(t)
	p := start(t, with([]string{"producer", "--connect", addr}, endless...)...)
	serving.stderr.await(t, "tcp push")
	p.signal(syscall.SIGSTOP)
	serving.signal(os.Interrupt)
	time.Sleep(100 * time.Millisecond)
	serving.signal(os.Interrupt)
	serving.end(promptly)
	p.signal(syscall.SIGCONT)
	p.end(promptly).want(t, exitFailed)
}

// TestStopped: a producer that stands still, whose sockets stay open, does not hold the
// consumer's place for ever. Going on, it hears why it lost it.
func TestStopped(t *testing.T) {
	for _, direction := range []string{"push", "pull"} {
		t.Run(direction, func(t *testing.T) {
			t.Parallel()
			serving, addr := consumer(t)
			p := start(t, with([]string{"producer", "--connect", addr, "--direction", direction}, endless...)...)
			serving.stderr.await(t, "tcp "+direction)
			intoTheRun()
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

// tinyDisk mounts a file system of a few pages and fills it.
func tinyDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	mount := exec.Command("mount", "-t", "tmpfs", "-o", "size=16k", "kvbench-test", dir)
	if out, err := mount.CombinedOutput(); err != nil {
		testenv.Skip(t, "mount", fmt.Sprintf("a file system cannot be mounted here: %v %s", err, bytes.TrimSpace(out)))
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v %s", err, out)
		}
	})
	f, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return dir
}

// TestFullDisk: a run is too dear to lose to a full disk.
func TestFullDisk(t *testing.T) {
	dir, elsewhere := tinyDisk(t), t.TempDir()
	l := launch{env: []string{"TMPDIR=" + elsewhere}}
	got := l.start(t, with(append([]string{"loopback"}, small...), "--out", filepath.Join(dir, "run.json"))...).end(patience)
	got.want(t, exitFailed, "no space left on device", "saved as "+elsewhere)
	saved, err := filepath.Glob(filepath.Join(elsewhere, "kvbench-*", "run.json"))
	if err != nil || len(saved) != 1 {
		t.Fatalf("saved %v, %v", saved, err)
	}
	if r := readRun(t, saved[0]); !r.Complete || r.Cells[0].Requests != 3 {
		t.Errorf("what was saved: complete %v, %d requests", r.Complete, r.Cells[0].Requests)
	}
	if !strings.Contains(got.stdout, "GB/s") {
		t.Errorf("the table was not printed:\n%s", got.stdout)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("on the full disk lie %v, %v", entries, err)
	}
}

// TestNoDisk: where nothing can be written at all the table is still there.
func TestNoDisk(t *testing.T) {
	dir := tinyDisk(t)
	l := launch{env: []string{"TMPDIR=" + dir}}
	got := l.start(t, with(append([]string{"loopback"}, small...), "--out", filepath.Join(dir, "run.json"))...).end(patience)
	got.want(t, exitFailed, "no space left on device")
	if !strings.Contains(got.stdout, "GB/s") {
		t.Errorf("the table was not printed:\n%s", got.stdout)
	}
}

// TestReadOnlyDirectory is found before the run.
func TestReadOnlyDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "run.json")
	if os.Getuid() == 0 {
		out = "/proc/run.json" // permissions do not hold root back
	}
	begin := time.Now()
	start(t, with(append([]string{"loopback"}, endless...), "--out", out)...).end(promptly).want(t, exitFailed, "choose another --out")
	if d := time.Since(begin); d > promptly {
		t.Errorf("found after %v", d)
	}
}

// TestResultReplaces: an older result is there until the new one is whole.
func TestResultReplaces(t *testing.T) {
	out := filepath.Join(t.TempDir(), "run.json")
	if err := os.WriteFile(out, []byte("older"), 0o644); err != nil {
		t.Fatal(err)
	}
	p := start(t, with(append([]string{"loopback"}, endless...), "--out", out)...)
	time.Sleep(300 * time.Millisecond)
	p.signal(os.Kill)
	p.end(promptly)
	if b, err := os.ReadFile(out); err != nil || string(b) != "older" {
		t.Errorf("after a run that was killed the older result is %q, %v", b, err)
	}
	start(t, with(append([]string{"loopback"}, small...), "--out", out)...).end(patience).want(t, exitDone)
	readRun(t, out)
}

// TestCheckOfAPipe: a record for which nobody writes is waited for until a signal comes.
func TestCheckOfAPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "record")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skipf("no pipes with a name here: %v", err)
	}
	p := start(t, "check", pipe)
	intoTheRun() // until it waits; before, a signal ends it in the system's way
	p.signal(os.Interrupt)
	p.end(promptly).want(t, exitFailed, "interrupted")
}
