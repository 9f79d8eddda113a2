package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kvbench/internal/hostinfo"
	"kvbench/internal/testenv"
	"kvbench/results"
	"kvbench/transport/rdma"
)

// needUCX skips a test where this build has no UCX or finds none, and fails it if
// KVBENCH_REQUIRE names rdma. What a developer has set for UCX is not part of a test.
func needUCX(t *testing.T) {
	t.Helper()
	if err := rdma.New().Probe(t.Context()); err != nil {
		testenv.Skip(t, "rdma", err.Error())
	}
	for _, v := range os.Environ() {
		if name, value, _ := strings.Cut(v, "="); strings.HasPrefix(name, "UCX_") {
			t.Setenv(name, value) // restores it
			os.Unsetenv(name)
		}
	}
}

// noRDMA ends a test that is about hosts without an RDMA device.
func noRDMA(t *testing.T) {
	t.Helper()
	if devices, _ := hostinfo.RDMADevices(); len(devices) > 0 {
		t.Skipf("this host has the RDMA device %s", devices[0].Name)
	}
}

// overUCX are the ways of moving data on the lanes that every host has.
var overUCX = []struct {
	lane, op, direction string
	path                string // how what the result calls the protocol must begin
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
			t.Parallel()
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
			if !slices.Contains(belongs[c.lane], lane) || !strings.HasPrefix(r.Transport.Protocol, c.path) || r.Transport.Emulated != c.emulated {
				t.Errorf("the result names lane %q by %q, emulated %v; want one of %v by %q, emulated %v",
					r.Transport.Lane, r.Transport.Protocol, r.Transport.Emulated, belongs[c.lane], c.path, c.emulated)
			}
		})
	}
}

// TestRDMAPath: each side's result names how the data went, also where the first of
// several connections carried none, and where memory that UCX did not make has puts
// emulated on the side that only serves them.
func TestRDMAPath(t *testing.T) {
	needUCX(t)
	run := func(l launch, args ...string) results.Transport {
		out := filepath.Join(t.TempDir(), "run.json")
		l.start(t, with(with([]string{"loopback", "--transport", "rdma", "--lane", "shm", "--out", out}, small...), args...)...).end(patience).want(t, exitDone)
		return readRun(t, out).Transport
	}
	r := run(launch{}, "--concurrency", "4", "--requests", "1", "--warmup", "0", "--calibrate", "off")
	if r.Protocol != "put" || r.Emulated || r.Consumer.Protocol != "put" {
		t.Errorf("one request over four connections: by %q, emulated %v; the consumer says %q", r.Protocol, r.Emulated, r.Consumer.Protocol)
	}
	for _, direction := range []string{"push", "pull"} {
		r := run(withDouble(t), "--memory", "cuda:0", "--direction", direction)
		if want := "put emulated by active messages"; r.Protocol != want || !r.Emulated || r.Consumer.Protocol != want || !r.Consumer.Emulated {
			t.Errorf("staged, %s: by %q, emulated %v; the consumer says %q, %v", direction, r.Protocol, r.Emulated, r.Consumer.Protocol, r.Consumer.Emulated)
		}
	}
}

// TestRDMAOtherEnvironment: the two sides may have other lanes of a family, by the UCX_TLS of
// each. Both serve, and agree on how the data went, and a consumer outlives it.
func TestRDMAOtherEnvironment(t *testing.T) {
	needUCX(t)
	for _, c := range []struct {
		consumer, producer, direction, path string
	}{
		{"", "posix", "push", "put emulated by active messages"},
		{"", "all", "pull", "get"},
		{"rc,sm,self", "", "push", "put"},
		{"all", "", "pull", "get"},
		{"posix", "", "pull", "get emulated by active messages"},
	} {
		t.Run(fmt.Sprintf("%q %q %s", c.consumer, c.producer, c.direction), func(t *testing.T) {
			t.Parallel()
			environment := func(tls string) (l launch) {
				if tls != "" {
					l.env = []string{"UCX_TLS=" + tls}
				}
				return l
			}
			serving, addr := environment(c.consumer).consumer(t, "--once")
			out := filepath.Join(t.TempDir(), "run.json")
			environment(c.producer).start(t, with([]string{"producer", "--connect", addr, "--transport", "rdma", "--lane", "shm", "--direction", c.direction, "--verify", "full", "--out", out}, small...)...).end(patience).want(t, exitDone)
			serving.end(patience).want(t, exitDone)
			if r := readRun(t, out).Transport; r.Protocol != c.path || r.Consumer.Protocol != c.path || r.Emulated != r.Consumer.Emulated {
				t.Errorf("by %q, emulated %v; the consumer says %q, %v; want %q", r.Protocol, r.Emulated, r.Consumer.Protocol, r.Consumer.Emulated, c.path)
			}
		})
	}
}

// TestRDMAWrongLane: nothing is measured on another lane than was asked for. The run
// ends with the reason, before there is a number.
func TestRDMAWrongLane(t *testing.T) {
	needUCX(t)
	for _, c := range []struct {
		name string
		env  []string
		args []string
		says []string
	}{
		{"shared memory is asked for and the environment says tcp", []string{"UCX_TLS=tcp"}, []string{"--lane", "shm"},
			[]string{"wrong lane", "asked for lane shm", "tcp/", "UCX_TLS=tcp in the environment", "--lane"}},
		{"tcp is asked for and the environment adds memory", []string{"UCX_TLS=tcp,sm"}, []string{"--lane", "tcp"},
			[]string{"wrong lane", "asked for lane tcp", "/memory", "UCX_TLS=tcp,sm in the environment"}},
		{"no device of that name", nil, []string{"--lane", "tcp", "--device", "nosuch0"},
			[]string{"no such lane", "on device nosuch0", "kvbench devices"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			fails(t, launch{env: c.env}, c.args, c.says)
		})
	}
}

// TestNoRDMA: a host without an RDMA device says where it looked, and what would help.
func TestNoRDMA(t *testing.T) {
	needUCX(t)
	noRDMA(t)
	looked := []string{"looked for RDMA devices in /sys/class/infiniband", "mend: ", "rdma_rxe", "--lane tcp", "--lane shm"}
	fails(t, launch{}, nil, append(looked, "an RDMA lane"))
	fails(t, launch{}, []string{"--lane", "rc"}, append(looked, "lane rc"))
	fails(t, launch{}, []string{"--lane", "ud", "--device", "mlx5_0"}, append(looked, "lane ud"))
	fails(t, launch{env: []string{"UCX_TLS=tcp"}}, []string{"--lane", "rc"}, append(looked, "lane rc"))
}

// fails checks that a run over RDMA ends with a reason and without a number.
func fails(t *testing.T, l launch, args, says []string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "run.json")
	args = with(with([]string{"loopback", "--transport", "rdma", "--out", out}, small...), args...)
	got := l.start(t, args...).end(promptly)
	got.want(t, exitFailed, says...)
	if got.stdout != "" {
		t.Errorf("and yet it prints:\n%s", got.stdout)
	}
	if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("and yet there is a result: %v", err)
	}
}

func TestRDMAUsage(t *testing.T) {
	needUCX(t)
	for _, c := range []struct {
		line string
		says []string
	}{
		{"--lane shm", []string{"--lane", "--transport rdma"}},
		{"--rdma-op put", []string{"--rdma-op", "--transport rdma"}},
		{"--transport tcp --lane tcp", []string{"--lane", "--transport rdma"}},
		{"--transport rdma --lane roce", []string{`"roce"`, "rc, dc, ud, tcp or shm"}},
		{"--transport rdma --lane shm --rdma-op scatter", []string{`"scatter"`, "put, am or get"}},
		{"--transport rdma --lane shm --rdma-op get", []string{"--rdma-op get cannot push", "--direction pull"}},
		{"--transport rdma --lane shm --rdma-op put --direction pull", []string{"--rdma-op put cannot pull", "--direction push"}},
		{"--transport rdma --lane shm --rdma-op am --direction pull", []string{"--rdma-op am cannot pull", "--direction push"}},
		{"--transport rdma --lane shm --streams 2", []string{"2 streams", "UCX_MAX_RNDV_RAILS"}},
		{"--transport rdma --lane shm --socket-buffer 4MiB", []string{"--socket-buffer", "UCX_TCP_SNDBUF"}},
		{"--transport rdma --lane shm --device eth0", []string{`"eth0"`, "--device"}},
	} {
		t.Run(c.line, func(t *testing.T) {
			kvbench(t, with(append([]string{"loopback"}, small...), strings.Fields(c.line)...)...).want(t, exitUsage, c.says...)
		})
	}
}
