package main

import (
	"bytes"
	"errors"
	"fmt"
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
)

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

// TestInterrupt: Ctrl-C ends a run in order and keeps what was measured.
func TestInterrupt(t *testing.T) {
	for _, direction := range []string{"push", "pull"} {
		at := afterRequests(3, direction)
		for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
			t.Run(fmt.Sprintf("producer %s %v", direction, signal), func(t *testing.T) {
				t.Parallel()
				_, addr := consumer(t)
				out := filepath.Join(t.TempDir(), "run.json")
				p := at.to(announce).start(t, with(append([]string{"producer", "--connect", addr}, endless...), "--direction", direction, "--out", out)...)
				p.reached(t, at)
				p.signal(signal)
				interrupted(t, p.end(promptly), out)
				goesOn(t, addr)
			})
		}
		t.Run("loopback "+direction, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(t.TempDir(), "run.json")
			p := at.to(announce).start(t, with(append([]string{"loopback"}, endless...), "--direction", direction, "--out", out)...)
			p.reached(t, at)
			p.signal(os.Interrupt)
			interrupted(t, p.end(promptly), out)
			noneLeft(t)
		})
	}
}

// TestInterruptKeepsNothing: without a file to keep it in, nothing is said to be kept.
func TestInterruptKeepsNothing(t *testing.T) {
	t.Parallel()
	at := afterRequests(3, "push")
	p := at.to(announce).start(t, with([]string{"loopback"}, endless...)...)
	p.reached(t, at)
	p.signal(os.Interrupt)
	got := p.end(promptly)
	got.want(t, exitFailed, "interrupted; what was measured until then is printed, marked as incomplete\n")
	if !strings.Contains(got.stdout, "INCOMPLETE: interrupted\n") {
		t.Errorf("what was measured is not printed:\n%s", got.stdout)
	}
}

// TestInterruptEarly: before anything was measured there is nothing to keep.
func TestInterruptEarly(t *testing.T) {
	for _, direction := range []string{"push", "pull"} {
		t.Run(direction, func(t *testing.T) {
			t.Parallel()
			_, addr := consumer(t)
			for _, at := range pointsOf("producer", direction)[:3] { // dial, register, and import or advertise
				t.Run(at.name, func(t *testing.T) {
					out := filepath.Join(t.TempDir(), "run.json")
					p := at.to(await).start(t, with(append([]string{"producer", "--connect", addr}, endless...), "--direction", direction, "--out", out)...)
					p.reached(t, at)
					p.signal(os.Interrupt)
					p.end(promptly).want(t, exitFailed, "interrupted before anything was measured\n")
					if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
						t.Errorf("and yet there is a result: %v", err)
					}
					goesOn(t, addr)
				})
			}
		})
	}
}

// TestSecondInterrupt: a second interrupt ends a process that the first has not ended,
// here a consumer that hangs while it closes a data connection.
func TestSecondInterrupt(t *testing.T) {
	t.Parallel()
	at, under := point{"consumer", "close", 1}, afterRequests(1, "push")
	serving, addr := at.to(hang).consumer(t)
	p := under.to(announce).start(t, with([]string{"producer", "--connect", addr}, endless...)...)
	p.reached(t, under)
	p.signal(syscall.SIGSTOP)
	serving.signal(os.Interrupt)
	serving.reached(t, at)
	// The first interrupt has cancelled the run. The default action is restored at the same
	// time but in another goroutine, so the second may come too early and is repeated.
	for ended := false; !ended; {
		serving.signal(os.Interrupt)
		select {
		case <-serving.ended:
			ended = true
		case <-time.After(100 * time.Millisecond):
		}
	}
	serving.end(promptly).want(t, killed)
	p.signal(syscall.SIGCONT)
	p.end(promptly).want(t, exitFailed)
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
	out := filepath.Join(t.TempDir(), "run.json")
	if err := os.WriteFile(out, []byte("older"), 0o644); err != nil {
		t.Fatal(err)
	}
	at := afterRequests(3, "push")
	at.to(die).start(t, with(append([]string{"loopback"}, endless...), "--out", out)...).end(patience).want(t, killed)
	if b, err := os.ReadFile(out); err != nil || string(b) != "older" {
		t.Errorf("after a run that was killed the older result is %q, %v", b, err)
	}
	start(t, with(append([]string{"loopback"}, small...), "--out", out)...).end(patience).want(t, exitDone)
	readRun(t, out)
}

// TestCheckOfAPipe: a record that nobody writes is waited for until a signal comes,
// whether the pipe has no other end yet or one that is silent.
func TestCheckOfAPipe(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "record")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skipf("no pipes with a name here: %v", err)
	}
	p := start(t, "check", pipe)
	inOpen(t, p, pipe)
	p.signal(os.Interrupt)
	p.end(promptly).want(t, exitFailed, "interrupted")

	p = start(t, "check", pipe)
	// Without waiting, the writing end opens once somebody is at the reading one.
	var writing *os.File
	for deadline := time.Now().Add(patience); writing == nil; time.Sleep(2 * time.Millisecond) {
		f, err := os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err != nil && (!errors.Is(err, syscall.ENXIO) || time.Now().After(deadline)) {
			t.Fatal(err)
		}
		writing = f
	}
	defer writing.Close()
	p.signal(os.Interrupt)
	p.end(promptly).want(t, exitFailed, "interrupted")
}

// inOpen waits until a thread of a process is in the system call that opens a file.
func inOpen(t *testing.T, p *process, path string) {
	t.Helper()
	number := map[string]string{"amd64": "257", "arm64": "56"}[runtime.GOARCH] // openat
	if runtime.GOOS != "linux" || number == "" {
		t.Skipf("needs the numbers of system calls in /proc, which %s/%s has not", runtime.GOOS, runtime.GOARCH)
	}
	dir := filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid))
	memory, err := os.Open(filepath.Join(dir, "mem"))
	if err != nil {
		t.Skipf("the memory of a process cannot be read here: %v", err)
	}
	defer memory.Close()
	name := make([]byte, len(path))
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		threads, _ := filepath.Glob(filepath.Join(dir, "task", "*", "syscall"))
		for _, thread := range threads {
			b, _ := os.ReadFile(thread)
			call := strings.Fields(string(b)) // number and arguments, of which the second is the name
			if len(call) < 3 || call[0] != number {
				continue
			}
			at, err := strconv.ParseInt(call[2], 0, 64)
			if _, errRead := memory.ReadAt(name, at); err == nil && errRead == nil && string(name) == path {
				return
			}
		}
	}
	t.Fatalf("%s was not opened", path)
}
