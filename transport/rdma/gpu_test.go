package rdma_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"kvbench/internal/cudadrv"
	"kvbench/internal/cudadrv/testdouble"
	"kvbench/internal/testenv"
	"kvbench/transport"
	"kvbench/transport/rdma"
	"kvbench/transport/transporttest"
	"kvbench/transport/transporttest/gpu"
)

// gpuMemory is what UCX is given, on device 0.
var gpuMemory = gpu.Memory(0, (*cudadrv.Context).AllocForRDMA)

// TestGPUConformance runs the suite over GPU memory that UCX is given directly.
func TestGPUConformance(t *testing.T) {
	testdouble.Only(t)
	transporttest.Run(t, transporttest.Subject{Listener: rdma.WithReachableGPUs(), ListenerMemory: gpuMemory, Config: gpuConfig})
}

// gpuConfig is of connections that move GPU memory on a lane that is here.
var gpuConfig = transport.Config{Lane: "tcp", Memory: transport.CUDAMemory}

// need skips where there is no test double, or no UCX.
func need(t *testing.T) {
	t.Helper()
	testdouble.Only(t)
	if err := rdma.New().Probe(t.Context()); err != nil {
		testenv.Skip(t, "rdma", err.Error())
	}
}

// connect makes a target of GPU memory and an initiator with a configuration.
func connect(t *testing.T, cfg transport.Config) (in transport.Initiator, target transport.Target) {
	t.Helper()
	need(t)
	l := must(rdma.WithReachableGPUs().Listen(t.Context(), gpuConfig))(t)
	defer l.Close()
	accepted := make(chan error, 1)
	go func() {
		var err error
		target, err = l.AcceptTarget(t.Context())
		accepted <- err
	}()
	in = must(rdma.WithReachableGPUs().Dial(t.Context(), l.Address(), cfg))(t)
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { errors.Join(in.Close(), target.Close()) })
	return in, target
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// TestGPUMemory makes memory at either end, and holds it to what an endpoint's memory
// must keep to.
func TestGPUMemory(t *testing.T) {
	for side := range 2 {
		in, target := connect(t, gpuConfig)
		e := []transport.Endpoint{in, target}[side]
		a, c := e.(transport.Allocator), e.(transport.Copier)
		m := must(a.Allocate(1 << 20))(t)
		if m.Kind != transport.CUDAMemory || m.Size() != 1<<20 {
			t.Fatalf("allocated %+v", m)
		}
		want := []byte("some bytes that come back")
		got := make([]byte, len(want))
		if err := errors.Join(c.CopyIn(m, 4711, want), c.CopyOut(m, 4711, got)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("copied in and out: %q, %v", got, err)
		}
		if _, err := e.Register(transport.HostBytes(want)); !errors.Is(err, transport.ErrUnsupported) {
			t.Errorf("Register of host memory: %v", err)
		}
		beyond := m
		beyond.Length++
		if _, err := e.Register(beyond); !errors.Is(err, transport.ErrBounds) {
			t.Errorf("Register of more than there is: %v", err)
		}
		r := must(e.Register(m))(t)
		if err := a.Free(m); !errors.Is(err, transport.ErrBusy) {
			t.Errorf("Free of registered memory: %v", err)
		}
		if err := errors.Join(e.Deregister(r), a.Free(m)); err != nil {
			t.Error(err)
		}
		left := must(a.Allocate(1))(t)
		if err := errors.Join(e.Close(), a.Free(left)); err != nil {
			t.Errorf("Close, and then Free: %v", err)
		}
		if _, err := a.Allocate(1); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("Allocate after Close: %v", err)
		}
	}
}

// TestGPUPath names the GPU whose memory moved.
func TestGPUPath(t *testing.T) {
	in, target := connect(t, gpuConfig)
	for _, e := range []transport.Endpoint{in, target} {
		p := e.Path()
		if p.Staging != nil || p.Details["gpu"] != "cuda:0" || p.Details["gpu_name"] != "Test double 0" {
			t.Errorf("path %+v", p)
		}
	}
}

// TestMessagesStayOutOfGPUMemory: a CPU puts messages in place, and GPU memory is not
// its to touch, whatever the peer sends.
func TestMessagesStayOutOfGPUMemory(t *testing.T) {
	in, target := connect(t, transport.Config{Lane: "tcp", Operation: "am"})
	m := must(target.(transport.Allocator).Allocate(4096))(t)
	theirs := must(target.Register(m))(t)
	remote := must(in.Import(must(target.Advertise(theirs))(t)))(t)[0]
	local := must(in.Register(transport.HostBytes(bytes.Repeat([]byte{1}, 4096))))(t)
	if err := in.Post(transport.Transfer{Op: transport.Write, Local: local, Remote: remote, Descriptors: []transport.Descriptor{{Length: 4096}}}); err != nil {
		t.Fatal(err)
	}
	var notices [1]transport.Notice
	if _, err := target.Notifications(t.Context(), notices[:]); !errors.Is(err, transport.ErrProtocol) {
		t.Errorf("the target of a message says %v", err)
	}
	got := make([]byte, 4096)
	if err := target.(transport.Copier).CopyOut(m, 0, got); err != nil || !bytes.Equal(got, make([]byte, 4096)) {
		t.Errorf("GPU memory changed, or %v", err)
	}
}

// TestGPUMemoryNeedsItsConfig: memory of the other kind is refused, and so is what would
// have a CPU put it in place.
func TestGPUMemoryNeedsItsConfig(t *testing.T) {
	need(t)
	messages := gpuConfig
	messages.Operation = "am"
	for name, c := range map[string]struct {
		over transport.Transport
		cfg  transport.Config
		says string
	}{
		"messages":        {rdma.WithReachableGPUs(), messages, "active messages are put in place by a CPU"},
		"this host's UCX": {rdma.New(), gpuConfig, "lane tcp has no device that reaches GPU memory"},
	} {
		_, errListen := c.over.Listen(t.Context(), c.cfg)
		_, errDial := c.over.Dial(t.Context(), transport.Address(`{}`), c.cfg)
		for _, err := range []error{errListen, errDial} {
			if !errors.Is(err, transport.ErrUnsupported) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v, want %q", name, err, c.says)
			}
		}
	}
	host := transport.Config{Lane: "tcp"}
	in, _ := connect(t, host)
	b := must(gpuMemory(4096))(t)
	defer b.Free()
	if _, err := in.Register(b.Memory()); !errors.Is(err, transport.ErrUnsupported) {
		t.Errorf("Register of GPU memory with a connection of host memory: %v", err)
	}
}
