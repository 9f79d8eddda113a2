package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"kvbench/internal/cudadrv/testdouble"
	"kvbench/internal/testenv"
	"kvbench/results"
	"kvbench/transport"
)

// doubleDir holds the test double of libcuda once buildDouble was called.
var doubleDir string

var buildDouble = sync.OnceValue(func() (err error) {
	if doubleDir, err = os.MkdirTemp("", "kvbench-double"); err != nil {
		return err
	}
	return testdouble.Build(doubleDir, false)
})

// withDouble starts kvbench with the test double of libcuda in the driver's place, and
// skips where that cannot be built.
func withDouble(t *testing.T, env ...string) launch {
	t.Helper()
	if runtime.GOOS != "linux" {
		testenv.Skip(t, "cuda-double", "the driver is loaded on Linux only")
	}
	err := buildDouble()
	if errors.Is(err, exec.ErrNotFound) {
		testenv.Skip(t, "cuda-double", err.Error())
	} else if err != nil {
		t.Fatal(err)
	}
	return launch{env: append([]string{"LD_LIBRARY_PATH=" + doubleDir}, env...)}
}

// llama70BTokens are the tokens of a request of [llama70B], and llama70BBytes its bytes:
// 327,680 a token in 80 layers. The long run moves 167.8 MB at a time.
var llama70BTokens = map[bool]int64{false: 16, true: 512}[testenv.Full]

var llama70BBytes = 327_680 * llama70BTokens

// llama70B are whole requests of Llama-2-70B, every byte of them checked.
var llama70B = []string{"--model", "llama-2-70b", "--context", fmt.Sprint(llama70BTokens), "--calibrate", "off", "--warmup", "1", "--requests", "2", "--verify", "full"}

// TestCUDALoopback moves whole requests between the GPU memory of two processes.
func TestCUDALoopback(t *testing.T) {
	t.Parallel()
	for _, direction := range []string{"push", "pull"} {
		t.Run(direction, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "run.json")
			args := append([]string{"loopback", "--transport", "cuda", "--direction", direction, "--out", out}, llama70B...)
			withDouble(t).start(t, args...).end(patience).want(t, exitDone)
			r := readRun(t, out)
			c := r.Cells[0]
			if c.Bytes != llama70BBytes || c.Requests != 2 || c.Verify.Checked == 0 || c.Verify.Mismatched != 0 {
				t.Errorf("%d requests of %d bytes, verification %+v; want 2 of %d, all of it right", c.Requests, c.Bytes, c.Verify, llama70BBytes)
			}
			if r.Config["memory"] != "cuda:0" || r.Transport.Lane != "cuda/same device (HBM copy)" || r.Transport.Device != "cuda:0" {
				t.Errorf("memory %q, lane %q, device %q", r.Config["memory"], r.Transport.Lane, r.Transport.Device)
			}
		})
	}
}

// TestCUDALoopbackByDescriptor does so where the driver makes no legacy handles.
func TestCUDALoopbackByDescriptor(t *testing.T) {
	t.Parallel()
	for _, direction := range []string{"push", "pull"} {
		out := filepath.Join(t.TempDir(), "run.json")
		args := append([]string{"loopback", "--transport", "cuda", "--direction", direction, "--out", out}, llama70B...)
		withDouble(t, "CUDA_DOUBLE_NO_LEGACY=0").start(t, args...).end(patience).want(t, exitDone)
		r := readRun(t, out)
		c := r.Cells[0]
		if c.Bytes != llama70BBytes || c.Requests != 2 || c.Verify.Checked == 0 || c.Verify.Mismatched != 0 {
			t.Errorf("%s: %d requests of %d bytes, verification %+v; want 2 of %d, all of it right", direction, c.Requests, c.Bytes, c.Verify, llama70BBytes)
		}
		if got := r.Transport.Details["handles"]; got != "posix_fd" {
			t.Errorf("%s: handles %v, want posix_fd", direction, got)
		}
	}
	withDouble(t, "CUDA_DOUBLE_NO_LEGACY=0", "CUDA_DOUBLE_FDS=0").start(t, append([]string{"loopback", "--transport", "cuda"}, small...)...).
		end(patience).want(t, exitFailed, "CUDA_ERROR_NOT_SUPPORTED", "does not export memory as file descriptors")
}

// TestStagedLoopback moves whole requests between the GPU memory of two processes over
// TCP: every stage moves each byte once, in both directions of initiation.
func TestStagedLoopback(t *testing.T) {
	t.Parallel()
	for _, direction := range []string{"push", "pull"} {
		t.Run(direction, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "run.json")
			checkStagedBytes(t, stagedAt(t, 200e6, 16, "full", direction, out), direction)
			kvbench(t, "check", out, "--against", "spec").want(t, exitFailed, "nothing to check against")
		})
	}
}

// stagedAt runs llama-2-70b, 4 KiB a token and layer, between two processes whose copies go
// at rate, in bytes a second. The double sleeps to keep it, and never copies faster.
func stagedAt(t *testing.T, rate float64, tokens int, verify, direction, out string) *results.Run {
	t.Helper()
	got := withDouble(t, fmt.Sprint("CUDA_DOUBLE_COPY_RATE=", int(rate))).start(t, "loopback", "--memory", "cuda:0", "--direction", direction, "--out", out,
		"--model", "llama-2-70b", "--context", fmt.Sprint(tokens), "--calibrate", "off", "--warmup", "0", "--requests", "3", "--verify", verify).end(patience)
	got.want(t, exitDone)
	for _, says := range []string{"GPU memory staged through host memory", "staged in chunks of up to 4 MiB: device to host", "the pipeline of stages takes"} {
		if !strings.Contains(got.stdout, says) {
			t.Errorf("the table does not say %q:\n%s", says, got.stdout)
		}
	}
	r := readRun(t, out)
	for name, s := range map[string]transport.StageTime{"device to host": r.Transport.Staging.ToHost, "host to device": r.Transport.Consumer.Staging.FromHost} {
		// Alone is worked out from the time less the startup, of which half at least remains.
		if s.BytesPerSecond <= 0 || s.BytesPerSecond > 1.05*rate || s.AloneBandwidth <= 0 || s.AloneBandwidth > 2.1*rate {
			t.Errorf("%s: %.4g bytes/s, alone %.4g; no copy is faster than %.4g", name, s.BytesPerSecond, s.AloneBandwidth, rate)
		}
	}
	if p, alone := r.Cells[0].Predicted.Staged.Seconds, float64(r.Cells[0].Bytes)/rate; p < alone/2.1 {
		t.Errorf("predicted %.4g s, and one copy takes %.4g s", p, alone)
	}
	return r
}

// checkStagedBytes holds what a staged run says of its stages against what it moved.
func checkStagedBytes(t *testing.T, r *results.Run, direction string) {
	t.Helper()
	c := r.Cells[0]
	if c.Verify.Checked == 0 || c.Verify.Mismatched != 0 || r.Transport.GPUPath != "staged" || r.Transport.Memory != "cuda" {
		t.Errorf("verification %+v, %q of %q memory", c.Verify, r.Transport.GPUPath, r.Transport.Memory)
	}
	here, there := r.Transport.Staging, r.Transport.Consumer.Staging
	if here == nil || there == nil || c.Predicted.Staged == nil {
		t.Fatal("the record has no stages, or no prediction by them")
	}
	wire, other := here.Wire, there.Wire
	if direction == "pull" {
		wire, other = other, wire
	}
	moved := c.Requests * c.Bytes
	if here.ToHost.Bytes != moved || there.FromHost.Bytes != moved || wire.Bytes != moved || other.Chunks != 0 || here.FromHost.Chunks != 0 || there.ToHost.Chunks != 0 {
		t.Errorf("stages %+v and %+v, want %d bytes in each", here, there, moved)
	}
}

// TestStagedWholeRequest moves whole requests with streams and a second worker.
func TestStagedWholeRequest(t *testing.T) {
	t.Parallel()
	for _, direction := range []string{"push", "pull"} {
		args := append([]string{"loopback", "--memory", "cuda:1", "--streams", "2", "--concurrency", "2", "--direction", direction}, llama70B...)
		withDouble(t).start(t, args...).end(patience).want(t, exitDone)
	}
}

// TestGPUMemoryIsChecked: a byte that is wrong in GPU memory fails the run, however it
// got there.
func TestGPUMemoryIsChecked(t *testing.T) {
	t.Parallel()
	for _, direction := range []string{"push", "pull"} {
		for name, c := range map[string]struct{ env, over []string }{
			"direct": {[]string{"CUDA_DOUBLE_CORRUPT=1"}, []string{"--transport", "cuda"}},
			"staged": {[]string{damage + "=middle"}, []string{"--memory", "cuda:0"}},
		} {
			t.Run(name+" "+direction, func(t *testing.T) {
				args := append(append([]string{"loopback", "--direction", direction, "--verify", "full"}, small...), c.over...)
				withDouble(t, c.env...).start(t, args...).end(patience).want(t, exitCorrupt, "data arrived wrong")
			})
		}
	}
}

// withoutDriver is a folder whose libcuda.so.1 does not load, as where there is none.
func withoutDriver(t *testing.T) launch {
	t.Helper()
	broken := t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, "libcuda.so.1"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return launch{env: []string{"LD_LIBRARY_PATH=" + broken}}
}

// TestNoCUDADriver asks for GPU memory on a host without a driver.
func TestNoCUDADriver(t *testing.T) {
	withoutCUDA(t, self(t)[0])
}

// withoutCUDA checks that a program reports that there is no driver, and why.
func withoutCUDA(t *testing.T, program string) {
	t.Helper()
	for _, over := range [][]string{{"--transport", "cuda"}, {"--memory", "cuda:0"}} {
		withoutDriver(t).startProgram(t, program, append([]string{"loopback"}, over...)...).end(patience).
			want(t, exitFailed, "no CUDA driver: libcuda.so.1 not found or not loadable")
	}
	got := withoutDriver(t).startProgram(t, program, "devices").end(patience)
	got.want(t, exitDone)
	if !strings.Contains(got.stdout, "CUDA devices\n  none: no CUDA driver: libcuda.so.1 not found") {
		t.Errorf("devices does not say that there is no driver:\n%s", got.stdout)
	}
}

// TestCUDADevices lists what the driver shows.
func TestCUDADevices(t *testing.T) {
	got := withDouble(t).start(t, "devices", "--format", "json").end(patience)
	got.want(t, exitDone)
	var found []map[string]any
	for _, r := range got.rows(t) {
		if r["kind"] == "cuda" {
			found = append(found, r)
		}
	}
	if len(found) != 2 || found[1]["ordinal"] != 1.0 || found[1]["name"] != "Test double 1" || found[1]["memory_bytes"] != float64(2<<30) ||
		found[1]["pci_address"] != "0000:11:00.0" || found[1]["cuda_version"] != "12.8" {
		t.Errorf("CUDA devices %v", found)
	}
}

// TestGPULinks: devices and a run name what joins two GPUs, alike, and say why where
// NVML does not.
func TestGPULinks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ env, link, reason string }{
		{"NVML_DOUBLE_LINKS=0-s:18,1-s:18", "NVLink 4 x18 through NVSwitch", ""},
		{"NVML_DOUBLE_TOPOLOGY=30", "PCIe 4 x16 through one host bridge", ""},
		{"NVML_DOUBLE_FAIL=nvmlInit_v2:9", "", "nvmlInit_v2: Driver Not Loaded (9)"},
	} {
		t.Run(c.env, func(t *testing.T) {
			l := withDouble(t, c.env)
			got := l.start(t, "devices", "--format", "json").end(patience)
			got.want(t, exitDone)
			listed := 0
			for _, r := range got.rows(t) {
				if r["kind"] != "gpu_link" {
					continue
				}
				listed++
				link, _ := r["link"].(string)
				reason, _ := r["reason"].(string)
				if r["ordinal"] != 0.0 || r["peer_ordinal"] != 1.0 || link != c.link || reason != c.reason {
					t.Errorf("devices has %v", r)
				}
			}
			if listed != 1 {
				t.Errorf("devices lists %d links between two GPUs", listed)
			}
			lane := "cuda/" + c.link
			if c.link == "" {
				lane = "cuda/peer, link unknown: " + c.reason
			}
			_, addr := l.consumer(t, "--gpu-device", "1")
			out := filepath.Join(t.TempDir(), "run.json")
			l.start(t, with(with([]string{"producer", "--connect", addr, "--out", out}, small...), "--transport", "cuda")...).end(patience).want(t, exitDone)
			if r := readRun(t, out).Transport; r.Lane != lane || r.Consumer.Lane != lane {
				t.Errorf("the run went over %q, by the consumer %q; want %q", r.Lane, r.Consumer.Lane, lane)
			}
		})
	}
}

// TestCUDAFailures provokes what users meet. Each has its message and its mend, and
// ends both sides in order.
func TestCUDAFailures(t *testing.T) {
	t.Parallel()
	old := t.TempDir()
	withDouble(t) // or skip
	if err := testdouble.Build(old, true); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		env  []string
		args string
		says []string
	}{
		"no device":           {[]string{"CUDA_DOUBLE_DEVICES=0"}, "--transport cuda", []string{"no CUDA device", "nvidia-smi -L"}},
		"no device to stage":  {[]string{"CUDA_DOUBLE_DEVICES=0"}, "--memory cuda:0", []string{"no CUDA device", "nvidia-smi -L"}},
		"hidden devices":      {[]string{"CUDA_VISIBLE_DEVICES="}, "--transport cuda", []string{"no CUDA device", `CUDA_VISIBLE_DEVICES="" hides`}},
		"no such device":      {nil, "--transport cuda --gpu-device 7", []string{"no CUDA device 7 among the 2 that this process sees"}},
		"no such to stage":    {nil, "--memory cuda:7", []string{"no CUDA device 7 among the 2 that this process sees"}},
		"out of memory":       {[]string{"CUDA_DOUBLE_MEMORY=1048576"}, "--transport cuda", []string{"CUDA_ERROR_OUT_OF_MEMORY (2)", "1048576 of 1048576 are free", "nvidia-smi shows it"}},
		"too little to stage": {[]string{"CUDA_DOUBLE_MEMORY=5000000"}, "--memory cuda:0 --context 128", []string{"CUDA_ERROR_OUT_OF_MEMORY (2)", "5000000 of 5000000 are free"}},
		"old driver":          {[]string{"LD_LIBRARY_PATH=" + old, "CUDA_DOUBLE_DRIVER=10020"}, "--transport cuda", []string{"CUDA driver too old for cuIpcOpenMemHandle_v2", "CUDA 11.0 or newer is needed"}},
		"same process":        {[]string{"CUDA_DOUBLE_FAIL=cuIpcOpenMemHandle_v2:0:201"}, "--transport cuda", []string{"does not open in the process that made it"}},
		"a copy fails":        {[]string{"CUDA_DOUBLE_FAIL=cuMemcpyBatchAsync:0:700"}, "--transport cuda --layout paged", []string{"device failed: copy on CUDA device 0", "CUDA_ERROR_ILLEGAL_ADDRESS (700)"}},
		"a staged copy fails": {[]string{"CUDA_DOUBLE_FAIL=cuMemcpyBatchAsync:0:700"}, "--memory cuda:0 --layout paged", []string{"device failed: copy ", "CUDA device 0", "CUDA_ERROR_ILLEGAL_ADDRESS (700)"}},
		"pinning fails":       {[]string{"CUDA_DOUBLE_FAIL=cuMemHostRegister_v2:0:2"}, "--memory cuda:0", []string{"pin 33554432 bytes of host memory for CUDA", "CUDA_ERROR_OUT_OF_MEMORY (2)"}},
	} {
		for _, direction := range []string{"push", "pull"} {
			t.Run(name+" "+direction, func(t *testing.T) {
				t.Parallel()
				args := with(with([]string{"loopback", "--direction", direction}, small...), strings.Fields(c.args)...)
				withDouble(t, c.env...).start(t, args...).end(patience).want(t, exitFailed, c.says...)
				noneLeft(t)
			})
		}
	}
	// An old driver stages all the same, copy by copy.
	withDouble(t, "LD_LIBRARY_PATH="+old, "CUDA_DOUBLE_DRIVER=10020").
		start(t, with(with([]string{"loopback"}, small...), "--memory", "cuda:0", "--layout", "paged")...).end(patience).want(t, exitDone)
}

// TestPIDNamespaces has the consumer in a PID namespace of its own, as in a container.
// Memory crosses by file descriptor, or not at all.
func TestPIDNamespaces(t *testing.T) {
	t.Parallel()
	unshare, err := exec.LookPath("unshare")
	if err != nil || os.Geteuid() != 0 {
		testenv.Skip(t, "pidns", "needs root and unshare, to make a PID namespace")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	unshared := func(l launch) (addr string) {
		p := l.startProgram(t, unshare, "--pid", "--fork", "--kill-child", self, "consumer", "--listen", "127.0.0.1:0", "--max-sessions", "4") // an earlier run may still be ending
		addr, _ = listeningOn(p.stdout.await(t, "listening on"))
		return addr
	}
	producer := func(l launch, addr string, more ...string) *process {
		return l.start(t, with(with([]string{"producer", "--connect", addr}, small...), more...)...)
	}
	l := withDouble(t)
	addr := unshared(l)
	for _, direction := range []string{"push", "pull"} {
		out := filepath.Join(t.TempDir(), "run.json")
		producer(l, addr, "--direction", direction, "--transport", "cuda", "--verify", "full", "--out", out).end(patience).want(t, exitDone)
		if d := readRun(t, out).Transport.Details; d["handles"] != "posix_fd" {
			t.Errorf("%s between PID namespaces by %v", direction, d["handles"])
		}
	}
	l = withDouble(t, "CUDA_DOUBLE_VMM=0") // which file descriptors need
	addr = unshared(l)
	for _, direction := range []string{"push", "pull"} {
		producer(l, addr, "--direction", direction, "--transport", "cuda").end(patience).
			want(t, exitFailed, "CUDA IPC handles do not cross PID namespaces", "--pid=host (docker)", "hostPID: true", "no virtual memory management")
	}
	// Staging needs no handles.
	producer(l, addr, "--memory", "cuda:0").end(patience).want(t, exitDone)
}

// TestTwoGPUs has producer and consumer on different devices, which reach each other
// or do not.
func TestTwoGPUs(t *testing.T) {
	t.Parallel()
	for peers, want := range map[string]int{"1": exitDone, "0": exitFailed} {
		l := withDouble(t, "CUDA_DOUBLE_PEERS="+peers)
		_, addr := l.consumer(t, "--gpu-device", "1", "--max-sessions", "2") // the first run may still be ending
		for _, direction := range []string{"push", "pull"} {
			out := filepath.Join(t.TempDir(), "run.json")
			got := l.start(t, with(with([]string{"producer", "--connect", addr, "--direction", direction, "--out", out}, small...), "--transport", "cuda")...).end(patience)
			if want == exitFailed {
				got.want(t, exitFailed, "no peer access from CUDA device", "nvidia-smi topo -p2p r")
				continue
			}
			got.want(t, exitDone)
			if r := readRun(t, out); r.Transport.Device != "cuda:0" || r.Transport.Consumer.Device != "cuda:1" || r.Transport.GPUPath != "direct" {
				t.Errorf("%s between %q and %q, %q", direction, r.Transport.Device, r.Transport.Consumer.Device, r.Transport.GPUPath)
			}
		}
	}
}

// TestMemoryFlags: what can be wrong with where the KV cache lies is said before
// anything is looked for.
func TestMemoryFlags(t *testing.T) {
	for line, says := range map[string]string{
		"--memory tape":                         `--memory "tape" is not known`,
		"--memory cuda":                         `--memory "cuda" is not known: choose host, or cuda:N`,
		"--memory cuda:-1":                      `--memory "cuda:-1" is not known`,
		"--memory host --transport cuda":        "--memory host with --transport cuda",
		"--memory cuda:0 --gpu-device 1":        "name two GPUs",
		"--gpu-device 1":                        "--gpu-device has no effect on host memory",
		"--gpu-device -1 --transport cuda":      "--gpu-device -1: give the number of a GPU",
		"--hugepages --memory cuda:0":           "--hugepages has no effect on GPU memory",
		"--lock --transport cuda":               "--lock has no effect on GPU memory",
		"--device eth0 --transport cuda":        "--device has no effect on CUDA IPC",
		"--socket-buffer 1MiB --transport cuda": "--socket-buffer has no effect on CUDA IPC",
	} {
		t.Run(line, func(t *testing.T) {
			kvbench(t, append([]string{"loopback"}, strings.Fields(line)...)...).want(t, exitUsage, says)
		})
	}
}
