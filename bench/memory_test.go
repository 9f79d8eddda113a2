package bench

import (
	"bytes"
	"errors"
	"testing"

	"kvbench/transport"
)

// device is an endpoint with memory that only its own calls reach.
type device struct {
	transport.Initiator
	memory  []byte
	in, out error
}

func (d *device) Allocate(size int64) (transport.Memory, error) {
	d.memory = make([]byte, size)
	return transport.Memory{Kind: transport.CUDAMemory, Length: size}, nil
}

func (d *device) Free(transport.Memory) error { return nil }

func (d *device) CopyIn(_ transport.Memory, off int64, from []byte) error {
	copy(d.memory[off:], from)
	return d.in
}

func (d *device) CopyOut(_ transport.Memory, off int64, to []byte) error {
	copy(to, d.memory[off:])
	return d.out
}

// blind is one that makes memory and gives no access to it.
type blind struct{ transport.Initiator }

func (blind) Allocate(size int64) (transport.Memory, error) {
	return transport.Memory{Kind: transport.CUDAMemory, Length: size}, nil
}

func (blind) Free(transport.Memory) error { return nil }

// hostOnly takes any memory.
type hostOnly struct{ transport.Initiator }

// gpuSide is a side of a run over GPU memory with one cell of 16 tokens.
func gpuSide(t *testing.T, memory transport.MemoryKind) *side {
	t.Helper()
	plan := planOf(Push, spec(t))
	plan.Memory = memory
	cells, err := plan.cells()
	if err != nil {
		t.Fatal(err)
	}
	source, _, _ := spans(cells)
	return &side{plan: plan, cells: cells, span: source}
}

// TestDeviceMemory: what is filled in is in the device's memory, and what is checked is
// what is there.
func TestDeviceMemory(t *testing.T) {
	s, d := gpuSide(t, transport.CUDAMemory), &device{}
	if err := s.place(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if m := s.memories[0]; m.Kind != transport.CUDAMemory || m.Size() != s.span || s.setup.MemoryBytes != s.span || bytes.Equal(d.memory, make([]byte, s.span)) {
		t.Errorf("%s memory of %d bytes, %d counted, all zero %v", m.Kind, m.Size(), s.setup.MemoryBytes, bytes.Equal(d.memory, make([]byte, s.span)))
	}
	if err := s.fill(&s.cells[0], 0, 1); err != nil {
		t.Fatal(err)
	}
	// Source and destination have one layout here, so the source passes for arrived.
	v, err := s.check(&s.cells[0], 0, 1)
	if err != nil || v.Checked == 0 || v.Mismatched != 0 {
		t.Fatalf("%+v, %v", v, err)
	}
	d.memory[0] ^= 1
	if v, err = s.check(&s.cells[0], 0, 1); err != nil || v.Mismatched != 1 {
		t.Errorf("after a wrong byte: %+v, %v", v, err)
	}
	d.in, d.out = errors.New("no way in"), errors.New("no way out")
	if err := s.fill(&s.cells[0], 0, 2); !errors.Is(err, d.in) {
		t.Errorf("fill: %v", err)
	}
	if _, err := s.check(&s.cells[0], 0, 2); !errors.Is(err, d.out) {
		t.Errorf("check: %v", err)
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
}

// TestNoDeviceMemory: a run over GPU memory is not made over any other.
func TestNoDeviceMemory(t *testing.T) {
	for _, e := range []transport.Endpoint{hostOnly{}, blind{}} {
		if err := gpuSide(t, transport.CUDAMemory).place(t.Context(), e); !errors.Is(err, transport.ErrUnsupported) {
			t.Errorf("%T: %v", e, err)
		}
	}
	s := gpuSide(t, transport.HostMemory)
	if err := s.place(t.Context(), hostOnly{}); err != nil || s.memories[0].Kind != transport.HostMemory {
		t.Errorf("host memory: %v", err)
	}
}

// named is a transport of a name and kinds of memory.
type named struct {
	transport.Transport
	name  string
	kinds []transport.MemoryKind
}

func (n *named) Name() string                         { return n.name }
func (n *named) Capabilities() transport.Capabilities { return transport.Capabilities{Memory: n.kinds} }

func TestPick(t *testing.T) {
	host, cuda := []transport.MemoryKind{transport.HostMemory}, []transport.MemoryKind{transport.CUDAMemory}
	both := []transport.MemoryKind{transport.HostMemory, transport.CUDAMemory}
	all := []transport.Transport{&named{name: "tcp", kinds: host}, &named{name: "rdma", kinds: both}, &named{name: "tcp", kinds: cuda}, &named{name: "rdma", kinds: cuda}, &named{name: "mem", kinds: host}}
	for _, c := range []struct {
		name string
		kind transport.MemoryKind
		want int // place in all
	}{{"tcp", transport.HostMemory, 0}, {"tcp", transport.CUDAMemory, 2}, {"rdma", transport.HostMemory, 1}, {"rdma", transport.CUDAMemory, 1}} {
		got, err := pick(all, c.name, c.kind)
		if err != nil || got != all[c.want] {
			t.Errorf("%s of %s memory: %v, %v", c.name, c.kind, got, err)
		}
	}
	if _, err := pick(all, "mem", transport.CUDAMemory); !errors.Is(err, transport.ErrUnsupported) || err.Error() != "transport mem moves no cuda memory, only [host]: "+transport.ErrUnsupported.Error() {
		t.Errorf("mem of cuda memory: %v", err)
	}
	if _, err := pick(all, "pigeon", transport.HostMemory); err == nil || err.Error() != `transport "pigeon" is not known to this build, which has [tcp rdma mem]` {
		t.Errorf("pigeon: %v", err)
	}
}
