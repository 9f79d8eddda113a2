package main

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"kvbench/internal/testenv"
	"kvbench/transport/rdma"
)

// stateOf is the row of a transport in kvbench devices.
func (o output) stateOf(t *testing.T, transport string) map[string]any {
	t.Helper()
	o.want(t, exitDone)
	for _, r := range o.rows(t) {
		if r["kind"] == "transport" && r["name"] == transport {
			return r
		}
	}
	t.Fatalf("no transport %s in:\n%s", transport, o.stdout)
	return nil
}

// unusable checks that a program lists RDMA as what it cannot use, with the reason
// and the mend, refuses to run over it, and runs over TCP.
func unusable(t *testing.T, run func(args ...string) output, says ...string) {
	t.Helper()
	row := run("devices", "--format", "json").stateOf(t, "rdma")
	text := run("devices").stdout
	for _, s := range says {
		if reason := fmt.Sprint(row["reason"]); row["usable"] != false || !strings.Contains(reason, s) {
			t.Errorf("usable %v, and the reason does not say %q: %s", row["usable"], s, reason)
		}
		if !strings.Contains(text, s) {
			t.Errorf("kvbench devices does not say %q:\n%s", s, text)
		}
	}
	rdma := run(with(append([]string{"loopback"}, small...), "--transport", "rdma", "--lane", "shm")...)
	rdma.want(t, exitFailed, says...)
	if rdma.stdout != "" {
		t.Errorf("and yet it prints:\n%s", rdma.stdout)
	}
	run(append([]string{"loopback"}, small...)...).want(t, exitDone)
}

// TestWithoutLibrary: a build with UCX runs where the library is not installed.
// Here it is hidden behind an empty file, for one process and its children.
func TestWithoutLibrary(t *testing.T) {
	if err := rdma.New().Probe(t.Context()); err != nil {
		testenv.Skip(t, "rdma", err.Error())
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	library := ""
	for line := range strings.Lines(string(maps)) {
		if f := strings.Fields(line); strings.Contains(filepath.Base(f[len(f)-1]), "libucp.so") {
			library = f[len(f)-1]
		}
	}
	if library == "" {
		t.Fatalf("libucp is loaded and not mapped:\n%s", maps)
	}
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	hide := []string{"-m", "sh", "-c", `mount --bind "$0" "$1" && shift && exec "$@"`, empty, library}
	if out, err := exec.Command("unshare", with(hide, "true")...).CombinedOutput(); err != nil {
		testenv.Skip(t, "mount", fmt.Sprintf("libucp cannot be hidden here: %v %s", err, out))
	}
	unusable(t, func(args ...string) output {
		return launch{}.startProgram(t, "unshare", append(hide, self(t, args...)...)...).end(patience)
	}, "UCX is not installed", "libucp", "install libucx0 (Debian) or ucx (RHEL)")
}

// withoutC builds the program without cgo.
func withoutC(t *testing.T, flags ...string) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "kvbench")
	build := exec.Command("go", with(with([]string{"build", "-o", program}, flags...), ".")...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return program
}

// TestStatic: what make static builds asks for no loader, and so for no C library of
// the host's, and runs.
func TestStatic(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skipf("a program without the system's libraries is Linux's; %s has none", runtime.GOOS)
	}
	program := withoutC(t, "-tags", "static")
	file, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("it has a segment %v", p.Type)
		}
	}
	launch{}.startProgram(t, program, append([]string{"loopback"}, small...)...).end(patience).want(t, exitDone)
}

// TestWithoutBinding: a build without cgo reports that it has neither UCX nor a CUDA driver.
func TestWithoutBinding(t *testing.T) {
	program := withoutC(t)
	run := func(args ...string) output { return launch{}.startProgram(t, program, args...).end(patience) }
	unusable(t, run, "built without ucx", "-tags ucx", "libucx-dev")
	if v := run("version").stdout; !strings.Contains(v, "transport rdma:") || !strings.Contains(v, "built without ucx") {
		t.Errorf("version says:\n%s", v)
	}
	withoutCUDA(t, program)
}
