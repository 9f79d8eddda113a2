package rdma_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"kvbench/internal/testenv"
	"kvbench/transport"
	"kvbench/transport/rdma"
)

// operations are those of Config.Operation.
var operations = []string{"put", "am", "get"}

// TestCycles connects, moves data and closes many times over: nothing of a connection may
// stay behind.
func TestCycles(t *testing.T) {
	needProbe(t)
	warmUp, cycles := 6, 24
	if testenv.Full {
		warmUp, cycles = 20, 1000
	}
	for _, lane := range []string{"shm", "tcp"} {
		t.Run(lane, func(t *testing.T) {
			series := func(cycles int) {
				for i := range cycles {
					cycle(t, transport.Config{Lane: lane, Operation: operations[i%len(operations)]})
				}
			}
			series(warmUp)
			before := usage(t)
			series(cycles)
			if left := leftBy(t, before); left != "" {
				t.Errorf("after %d cycles: %s", cycles, left)
			}
		})
	}
}

// leftBy says what this process holds more than before, once what is on its way out has
// had time to go.
func leftBy(t *testing.T, before held) (left string) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		after := usage(t)
		if left = after.beyond(before); left == "" || time.Now().After(deadline) {
			return left
		}
	}
}

// beyond says what h holds more than before.
func (h held) beyond(before held) string {
	const most = 20 << 20 // growth of resident memory that is noise: of a long series
	switch {
	case h.descriptors > before.descriptors:
		return fmt.Sprintf("%d file descriptors, %d before", h.descriptors, before.descriptors)
	case h.shared > before.shared || h.locked > before.locked:
		return fmt.Sprintf("%d bytes are shared and %d locked, %d and %d before", h.shared, h.locked, before.shared, before.locked)
	case h.resident-before.resident > most && testenv.Full && !testenv.Race:
		return fmt.Sprintf("resident memory has grown by %d bytes", h.resident-before.resident)
	case h.goroutines > before.goroutines:
		return fmt.Sprintf("%d goroutines, %d before", h.goroutines, before.goroutines)
	case h.segments > before.segments:
		return fmt.Sprintf("%d segments of this process's are left on the host, %d before", h.segments, before.segments)
	}
	return ""
}

// needProbe skips a test where the transport cannot be used, or fails it where it must.
func needProbe(t *testing.T) {
	t.Helper()
	if err := rdma.New().Probe(t.Context()); err != nil {
		testenv.Skip(t, "rdma", err.Error())
	}
}

// TestUnifiedMode: with this setting UCX opens one kind of shared memory between the two
// sides, and makes memory of another, which it then reaches by messages. Both sides see it.
func TestUnifiedMode(t *testing.T) {
	needProbe(t)
	t.Setenv("UCX_UNIFIED_MODE", "y")
	for _, operation := range operations {
		t.Run(operation, func(t *testing.T) { cycle(t, transport.Config{Lane: "shm", Operation: operation}) })
	}
}

// held is what this process holds.
type held struct {
	resident, locked int64 // bytes
	shared           int64 // bytes of shared memory that are mapped
	descriptors      int
	goroutines       int
	segments         int // System V segments on the host that this process made
}

func usage(t *testing.T) held {
	t.Helper()
	debug.FreeOSMemory()
	h := held{goroutines: runtime.NumGoroutine()}
	read := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for line := range strings.Lines(read("/proc/self/status")) {
		name, value, _ := strings.Cut(line, ":")
		kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		switch name {
		case "RssAnon":
			h.resident = kib << 10
		case "RssShmem":
			h.shared = kib << 10
		case "VmLck":
			h.locked = kib << 10
		}
	}
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	h.descriptors = len(fds)
	for line := range strings.Lines(read("/proc/sysvipc/shm")) {
		if f := strings.Fields(line); len(f) > 4 && f[4] == strconv.Itoa(os.Getpid()) { // cpid
			h.segments++
		}
	}
	return h
}

// cycle is one connection's life.
func cycle(t *testing.T, cfg transport.Config) {
	t.Helper()
	const size = 256 << 10
	cfg.MaxOutstanding = 8
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
	target := <-accepted
	if target == nil {
		t.FailNow()
	}
	local, here, freeHere := register(t, in, size, 1)
	region, there, freeThere := register(t, target, size, 2)
	ad, err := target.Advertise(region)
	if err != nil {
		t.Fatal(err)
	}
	remote, err := in.Import(ad)
	if err != nil {
		t.Fatal(err)
	}
	transfer := transport.Transfer{ID: 1, Op: transport.Write, Local: local, Remote: remote[0], Descriptors: []transport.Descriptor{{Length: size}}}
	if cfg.Operation == "get" {
		transfer.Op = transport.Read
	}
	if err := in.Post(transfer); err != nil {
		t.Fatal(err)
	}
	if err := in.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	var done [1]transport.Completion
	if n, err := in.Poll(done[:]); n != 1 || err != nil || done[0].Err != nil || !bytes.Equal(here, there) {
		t.Fatalf("%d completions, %v: %+v; the same bytes at both ends: %v", n, err, done[0], bytes.Equal(here, there))
	}
	var notices [1]transport.Notice
	if n, err := target.Notifications(t.Context(), notices[:]); n != 1 || err != nil {
		t.Fatalf("%d notices, %v", n, err)
	}
	if a, b := in.Path(), target.Path(); a.Protocol != b.Protocol || a.Emulated != b.Emulated {
		t.Errorf("the initiator says %q (emulated: %v), and the target %q (%v)", a.Protocol, a.Emulated, b.Protocol, b.Emulated)
	}
	in.Close()
	target.Close()
	// Memory outlives the connection that it was made by.
	if here[0] != there[len(there)-1] {
		t.Error("the bytes have changed after the end")
	}
	freeHere()
	freeThere()
}

// register makes memory as a run would, with a value in each byte, and registers it.
func register(t *testing.T, e transport.Endpoint, size int64, value byte) (r transport.Region, b []byte, free func()) {
	t.Helper()
	memory, err := e.(transport.Allocator).Allocate(size)
	free = func() {
		if err := e.(transport.Allocator).Free(memory); err != nil {
			t.Error(err)
		}
	}
	if errors.Is(err, transport.ErrUnsupported) { // a lane that takes any
		memory, free, err = transport.HostBytes(make([]byte, size)), func() {}, nil
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range memory.Bytes {
		memory.Bytes[i] = value
	}
	if r, err = e.Register(memory); err != nil {
		t.Fatal(err)
	}
	return r, memory.Bytes, free
}
