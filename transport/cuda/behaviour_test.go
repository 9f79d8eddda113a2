package cuda_test

import (
	"testing"

	"kvbench/internal/cudadrv/testdouble"
	"kvbench/transport"
	"kvbench/transport/transporttest"
)

// TestPath reads what the result says of the lane.
func TestPath(t *testing.T) {
	testdouble.Only(t)
	for device, lane := range []string{"cuda/same device (HBM copy)", "cuda/PCIe 4 x16 between NUMA nodes"} {
		s := connect(t, start(t, 0), device, transport.Config{Streams: 2})
		remote := must(s.share(t))(t)
		if err := s.initiator.Post(s.write(remote[0], 1)); err != nil {
			t.Fatal(err)
		}
		if c := wait(t, s.initiator); c.Err != nil {
			t.Fatal(c.Err)
		}
		in, target := s.initiator.Path(), s.target.Path()
		if in.Lane != lane || target.Lane != lane {
			t.Errorf("device %d: lanes %q and %q, want %q", device, in.Lane, target.Lane, lane)
		}
		if in.Device != "cuda:0" || target.Device != []string{"cuda:0", "cuda:1"}[device] {
			t.Errorf("device %d: devices %q and %q", device, in.Device, target.Device)
		}
		if in.Details["handles"] != "legacy" || target.Details["handles"] != "legacy" {
			t.Errorf("device %d: handles %v and %v, want legacy", device, in.Details["handles"], target.Details["handles"])
		}
		if in.Details["device_uuid"] != target.Details["peer_device_uuid"] || target.Details["device_uuid"] != in.Details["peer_device_uuid"] {
			t.Errorf("device %d: %v and %v", device, in.Details, target.Details)
		}
		// One transfer of 1 MiB, which is too small to split, is one copy on one stream.
		first := in.Details["streams"].([]any)[0].(map[string]any)
		on, clock, launch := first["device_seconds"].(float64), first["clock_seconds"].(float64), first["launch_seconds"].(float64)
		if first["parts"] != 1.0 || first["copies"] != 1.0 || on <= 0 || on > clock || launch <= 0 || launch > clock {
			t.Errorf("device %d: %v", device, first)
		}
		closeBoth(t, s)
	}
}

// TestOpenedOnce shares two regions of one allocation, over two connections.
func TestOpenedOnce(t *testing.T) {
	testdouble.Only(t)
	t.Run("handle", func(t *testing.T) { openedOnce(t, memoryOf) })
	t.Run("descriptor", func(t *testing.T) { openedOnce(t, shareableOf) })
}

func openedOnce(t *testing.T, of func(device int) transporttest.Allocator) {
	child := start(t, 0)
	a := connect(t, child, 0, transport.Config{}, of)
	must(a.share(t))(t)
	b := connect(t, child, 0, transport.Config{})
	half := a.memory.Memory()
	half.Length /= 2
	again := must(b.target.Register(half))(t)
	must(b.initiator.Import(must(b.target.Advertise(b.region, again))(t)))(t)
	if d := a.initiator.Path().Details; d["opened"] != 1.0 || d["opened_before"] != 0.0 || d["open_seconds"].(float64) <= 0 {
		t.Errorf("first connection: %v", d)
	}
	if d := b.initiator.Path().Details; d["opened"] != 1.0 || d["opened_before"] != 1.0 {
		t.Errorf("second connection: %v", d)
	}
	// The allocation stays open for the second when the first lets go, which the
	// double would tell by refusing this.
	if err := a.initiator.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.memory.Free(); err == nil {
		t.Error("memory that the second connection has open was freed")
	}
	if err := b.target.Deregister(again); err != nil {
		t.Fatal(err)
	}
	if err := a.memory.Free(); err != nil {
		t.Errorf("after both let go: %v", err)
	}
	if err := b.target.Close(); err != nil {
		t.Error(err)
	}
}

// TestRefusedBatches: the path says what the driver does, and not only what calls it has.
func TestRefusedBatches(t *testing.T) {
	testdouble.Only(t)
	for env, want := range map[string]bool{"CUDA_DOUBLE_FAIL=": true, "CUDA_DOUBLE_FAIL=cuMemcpyBatchAsync:0:801": false} {
		s := connect(t, start(t, 0, env), 0, transport.Config{})
		x := s.write(must(s.share(t))(t)[0], 1)
		x.Descriptors = []transport.Descriptor{{Length: 1}, {Local: 2, Remote: 2, Length: 1}}
		if err := s.initiator.Post(x); err != nil {
			t.Fatal(err)
		}
		if c := wait(t, s.initiator); c.Err != nil {
			t.Fatal(c.Err)
		}
		if got := s.initiator.Path().Details["batched_copies"]; got != want {
			t.Errorf("%s: batched_copies %v, want %v", env, got, want)
		}
		closeBoth(t, s)
	}
}
