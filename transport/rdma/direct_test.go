package rdma

import (
	"errors"
	"strings"
	"testing"

	"kvbench/internal/cudadrv"
	"kvbench/internal/cudadrv/testdouble"
	"kvbench/internal/hostinfo"
	"kvbench/internal/ucx"
	"kvbench/transport"
)

// TestCheckDirect has hosts on which GPU memory moves directly, and what keeps it from
// that on others.
func TestCheckDirect(t *testing.T) {
	const host, both = ucx.MemoryTypes(1 << ucx.HostMemory), ucx.MemoryTypes(1<<ucx.HostMemory | 1<<ucx.CUDAMemory)
	loaded := hostinfo.PeerMemory{Modules: []string{"nvidia_peermem"}}
	for _, c := range []struct {
		name    string
		version string
		types   ucx.MemoryTypes
		env     map[string]string
		peers   hostinfo.PeerMemory
		says    string // empty: it does
	}{
		{"all there", "1.16.0", both, nil, loaded, ""},
		{"newer", "2.0.0", both, map[string]string{"UCX_PROTO_ENABLE": "y", "UCX_IB_GPU_DIRECT_RDMA": "try"}, loaded, ""},
		{"Debian's", "1.13.1", host, nil, loaded, "UCX 1.13.1 takes no CUDA memory: it was built without CUDA"},
		{"UCX_TLS without CUDA", "1.18.0", host, map[string]string{"UCX_TLS": "rc"}, loaded, "takes no CUDA memory with UCX_TLS=rc in the environment: add cuda_copy"},
		{"too old", "1.15.0", both, nil, loaded, "UCX 1.15.0 cannot put and get CUDA memory: that takes UCX 1.16 or newer"},
		{"unknown version", "master", both, nil, loaded, "UCX master cannot put and get"},
		{"protocols off", "1.17.0", both, map[string]string{"UCX_PROTO_ENABLE": "n"}, loaded, "UCX_PROTO_ENABLE=n in the environment"},
		{"GPUDirect off", "1.17.0", both, map[string]string{"UCX_IB_GPU_DIRECT_RDMA": "No"}, loaded, "UCX_IB_GPU_DIRECT_RDMA=No in the environment"},
		{"no module", "1.17.0", both, nil, hostinfo.PeerMemory{OpenDriver: true}, "modprobe nvidia-peermem"},
	} {
		err := checkDirect(c.version, c.types, c.env, c.peers)
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
	}
}

func TestLanesThatReachGPUs(t *testing.T) {
	hard, soft := port{&hostinfo.RDMADevice{}, nil}, port{&hostinfo.RDMADevice{Software: true}, nil}
	for lane, says := range map[string]string{
		"": "", "rc": "", "dc": "",
		"ud":  "lane ud has no one-sided operations",
		"tcp": "lane tcp has no device that reaches GPU memory",
		"shm": "lane shm has no device that reaches GPU memory",
	} {
		f, _ := familyOf(lane)
		err := f.reachesGPUs([]port{soft, hard})
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("lane %q: %v, want %q", lane, err, says)
		}
	}
	if err := families[0].reachesGPUs([]port{soft}); err == nil || !strings.Contains(err.Error(), "no RDMA device but software") {
		t.Errorf("software devices only: %v", err)
	}
}

// TestCheckDirectHere asks the UCX that is here, on the lanes that every host has.
func TestCheckDirectHere(t *testing.T) {
	if ucx.Load() != nil {
		if err := New().CheckDirect(t.Context(), transport.Config{}); !errors.Is(err, transport.ErrUnavailable) {
			t.Errorf("without UCX: %v", err)
		}
		return
	}
	for says, cfg := range map[string]transport.Config{
		"lane tcp has no device": {Lane: "tcp"},
		"lane shm has no device": {Lane: "shm"},
		"put in place by a CPU":  {Operation: opAM},
		`lane "ib" is not known`: {Lane: "ib"},
		"2 streams: UCX spreads": {Streams: 2},
	} {
		if err := New().CheckDirect(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want %q", cfg, err, says)
		}
	}
	// Asked for the transport that it may lack, UCX says what it has.
	f, _ := familyOf("tcp")
	asked := settings(f, transport.Config{Memory: transport.CUDAMemory})
	types, err := memoryTypes(asked)
	if err != nil || !types.Has(ucx.HostMemory) {
		t.Errorf("with %v UCX takes %#x, %v", asked, types, err)
	}
	if again, err := memoryTypes(asked); err != nil || again != types {
		t.Errorf("asked again: %#x, %v", again, err)
	}
}

// TestBind has the thread that calls UCX bound to the GPU's context, or none at all.
func TestBind(t *testing.T) {
	testdouble.Only(t)
	needUCX(t)
	d, err := cudadrv.Open()
	if err != nil {
		t.Fatal(err)
	}
	c, err := d.Context(0)
	if err != nil {
		t.Fatal(err)
	}
	f, _ := familyOf("tcp")
	o := ucx.Options{Settings: settings(f, transport.Config{}), Slots: 1, Window: 1}
	o.Bind.Function, o.Bind.Context = c.Binding()
	w, err := ucx.NewWorker(o)
	if err != nil {
		t.Fatal(err)
	}
	w.Interrupt()
	w.Free()
	o.Bind.Context = 1
	var e *ucx.Error
	if _, err := ucx.NewWorker(o); !errors.As(err, &e) || e.Call != "cuCtxSetCurrent" {
		t.Errorf("bound to no context: %v", err)
	}
}

// TestUsedDirectly: one-sided operations that UCX makes of messages are not direct.
func TestUsedDirectly(t *testing.T) {
	for _, c := range []struct {
		name, text string
		gpu        *gpuSide
		fails      bool
	}{
		{"queue pairs", textSecond, &gpuSide{kind: ucx.CUDAMemory}, false},
		{"datagrams", textSecondDatagrams, &gpuSide{kind: ucx.CUDAMemory}, true},
		{"datagrams of host memory", textSecondDatagrams, nil, false},
	} {
		u, err := parsed(t, c.text).carrying(ucx.Put, true)
		if err != nil {
			t.Fatal(err)
		}
		err = (&connection{gpu: c.gpu}).checkUsedDirectly(u)
		if c.fails != errors.Is(err, errWrongLane) {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.fails {
			says(t, err, "put emulated by active messages on ud_mlx5/mlx5_0:1", "--lane ud, which is staged")
		}
	}
}
