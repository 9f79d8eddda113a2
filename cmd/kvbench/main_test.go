package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"kvbench/internal/testenv"
	"kvbench/results"
)

// The test binary is kvbench too, when it is started with asKVBench set: tests
// run real processes, and loopback finds its own program as it does in a build.
// With damage set, those processes move data over a broken TCP transport; with direct
// set, UCX takes the test double's GPU memory for the host's; with pointVar set, they act
// at a point of the protocol.
const (
	asKVBench = "RUN_KVBENCH"
	damage    = "RUN_KVBENCH_DAMAGE"
	direct    = "RUN_KVBENCH_DIRECT" // both, or the command of the one side
	mark      = "RUN_KVBENCH_TEST"   // names the test that a process belongs to
)

func TestMain(m *testing.M) {
	if os.Getenv(asKVBench) != "" {
		how, sides, at := os.Getenv(damage), os.Getenv(direct), os.Getenv(pointVar)
		if how+sides+at == "" {
			main()
		}
		ctx := untilSignal()
		a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr}
		switch {
		case how != "":
			a.transports = damaged(how)
		case sides != "":
			a.transports = directly(sides, os.Args[1])
		default:
			a.transports = pointed(ctx, at, os.Args[1])
		}
		os.Exit(a.run(ctx, os.Args[1:]))
	}
	// A process that was meant to be kvbench but is not marked as it would run these
	// tests, which start further processes: without end.
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-test.") {
		fmt.Fprintf(os.Stderr, "the test binary was started as %q without %s\n", os.Args, asKVBench)
		os.Exit(97)
	}
	// From here on, whatever starts this binary means kvbench.
	os.Setenv(asKVBench, "1")
	os.Setenv(testenv.EndAtOnce())
	// Flags that a developer keeps in the environment are not part of a test.
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "KVBENCH_") && name != testenv.RequireVar {
			os.Unsetenv(name)
		}
	}
	status := m.Run()
	os.RemoveAll(doubleDir)
	os.Exit(status)
}

// output is what a command line brought.
type output struct {
	status         int
	stdout, stderr string
}

// kvbench runs a command line inside this process.
func kvbench(t *testing.T, args ...string) output {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var stdout, stderr bytes.Buffer
	status := run(ctx, args, strings.NewReader(""), &stdout, &stderr)
	return output{status, stdout.String(), stderr.String()}
}

// want checks the exit status and that standard error says something.
func (o output) want(t *testing.T, status int, says ...string) {
	t.Helper()
	if o.status != status {
		t.Errorf("exit status %d, want %d; stderr:\n%s", o.status, status, o.stderr)
	}
	for _, s := range says {
		if !strings.Contains(o.stderr, s) {
			t.Errorf("stderr does not say %q:\n%s", s, o.stderr)
		}
	}
	for _, trace := range []string{"panic:", "goroutine ", "runtime error", "fatal error"} {
		if strings.Contains(o.stderr, trace) {
			t.Errorf("a stack trace where a message belongs:\n%s", o.stderr)
		}
	}
}

// process is a kvbench of its own.
type process struct {
	t              *testing.T
	cmd            *exec.Cmd
	stdout, stderr lines
	ended          chan struct{} // closed when it has, with nothing left in its pipes
}

// launch is how a process starts: in its environment, beyond the test's own.
type launch struct {
	env []string
	dir string
}

// start starts kvbench as a process, which the end of the test kills.
func start(t *testing.T, args ...string) *process { return launch{}.start(t, args...) }

func (l launch) start(t *testing.T, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return l.startProgram(t, self, args...)
}

func (l launch) startProgram(t *testing.T, program string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(program, args...), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), append(l.env, mark+"="+markOf(t))...)
	p.cmd.Dir = l.dir
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	p.cmd.WaitDelay = 5 * time.Second
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.ended
	})
	return p
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatal(err)
	}
}

// end waits for the process and returns what it brought. It may take within.
func (p *process) end(within time.Duration) output {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(within):
		// Where it hangs is worth more than that it does.
		p.cmd.Process.Signal(syscall.SIGQUIT)
		select {
		case <-p.ended:
		case <-time.After(5 * time.Second):
		}
		p.t.Fatalf("kvbench %s did not end within %v:\n%s", strings.Join(p.cmd.Args[1:], " "), within, p.stderr.text())
	}
	return output{p.cmd.ProcessState.ExitCode(), p.stdout.text(), p.stderr.text()}
}

// patience bounds what is not itself under test. A run takes a second under the race
// detector, and ten times that on a busy machine; what hangs takes for ever.
const patience = 2 * time.Minute

// lines collects what a process writes and lets a test wait for a line of it.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// await returns the first whole line that has a part of text in it.
func (l *lines) await(t *testing.T, part string) string {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		text := l.text()
		whole := text[:strings.LastIndex(text, "\n")+1]
		for line := range strings.Lines(whole) {
			if strings.Contains(line, part) {
				return strings.TrimSuffix(line, "\n")
			}
		}
	}
	t.Fatalf("no line with %q in:\n%s", part, l.text())
	return ""
}

// consumer starts a consumer on a port of its own and returns its address.
func consumer(t *testing.T, args ...string) (*process, string) { return launch{}.consumer(t, args...) }

func (l launch) consumer(t *testing.T, args ...string) (*process, string) {
	t.Helper()
	p := l.start(t, append([]string{"consumer", "--listen", "127.0.0.1:0"}, args...)...)
	addr, ok := listeningOn(p.stdout.await(t, "listening on"))
	if !ok {
		t.Fatalf("the consumer says %q", p.stdout.text())
	}
	return p, addr
}

// small is a workload of a few megabytes, and nothing that takes time beside it.
var small = with(tiny, "--requests", "3")

// tiny is the same without an end: it takes --requests or --duration.
var tiny = []string{"--model", "qwen3-0.6b", "--context", "16", "--calibrate", "off", "--warmup", "1"}

// endless is one that goes on until it is ended.
var endless = []string{"--model", "qwen3-0.6b", "--context", "16", "--calibrate", "off", "--duration", "60s", "--warmup", "0"}

// with is args and more.
func with(args []string, more ...string) []string { return append(args[:len(args):len(args)], more...) }

// produce runs a small workload against a consumer and returns what it brought.
func produce(t *testing.T, addr string, args ...string) output {
	t.Helper()
	return start(t, with(with([]string{"producer", "--connect", addr}, small...), args...)...).end(patience)
}

// readRun reads a record.
func readRun(t *testing.T, path string) *results.Run {
	t.Helper()
	r, err := results.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// rows are the rows of a command's JSON table.
func (o output) rows(t *testing.T) []map[string]any {
	t.Helper()
	var table struct{ Rows []map[string]any }
	if err := json.Unmarshal([]byte(o.stdout), &table); err != nil {
		t.Fatalf("%v in:\n%s\nstderr:\n%s", err, o.stdout, o.stderr)
	}
	return table.Rows
}

// within reports whether got is want to a share.
func within(got, want, share float64) bool { return got >= want*(1-share) && got <= want*(1+share) }

// markOf names a test in the environment of its processes.
func markOf(t *testing.T) string { return fmt.Sprintf("%d/%s", os.Getpid(), t.Name()) }

// noneLeft checks that no process of this test lives on, children of children included.
func noneLeft(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Logf("not checked on %s: whether a process is left", runtime.GOOS)
		return
	}
	var left []string
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if left = alive(t); len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("processes left behind: %s", strings.Join(left, "; "))
			return
		}
	}
}

// alive lists the processes that carry this test's mark.
func alive(t *testing.T) (found []string) {
	t.Helper()
	environs, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range environs {
		env, err := os.ReadFile(path) // empty for a process that has ended
		if err != nil || !bytes.Contains(append(env, 0), []byte("\x00"+mark+"="+markOf(t)+"\x00")) {
			continue
		}
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		found = append(found, filepath.Base(filepath.Dir(path))+" "+strings.ReplaceAll(string(line), "\x00", " "))
	}
	return found
}

// unfinished lists the temporary files that writing a result may leave in a directory.
func unfinished(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, ".kvbench-*"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}
