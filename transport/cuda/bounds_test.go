package cuda_test

import (
	"encoding/json"
	"errors"
	"testing"

	"kvbench/internal/cudadrv/testdouble"
	"kvbench/transport"
	"kvbench/transport/transporttest"
)

// advertised is what a session's target says of its region.
func (s *session) advertised(t *testing.T) map[string]any {
	t.Helper()
	var regions []map[string]any
	if err := json.Unmarshal(must(s.target.Advertise(s.region))(t), &regions); err != nil || len(regions) != 1 {
		t.Fatalf("%d regions, %v", len(regions), err)
	}
	return regions[0]
}

// beyond is what a session's target advertises, changed: the region has another ID and
// size, and is said to lie in an allocation of 1 TiB.
func beyond(t *testing.T, s *session, size int64) transport.Advertisement {
	t.Helper()
	r := s.advertised(t)
	r["id"], r["size_bytes"], r["allocation_bytes"] = 77, size, int64(1)<<40
	return must(json.Marshal([]any{r}))(t)
}

// TestRegionBeyondItsAllocation: the size of what was opened is this side's driver's to
// say, whatever the peer says of it.
func TestRegionBeyondItsAllocation(t *testing.T) {
	for _, c := range []struct {
		name   string
		memory func(device int) transporttest.Allocator
		need   func(*testing.T)
		reused bool // the allocation is open already
	}{
		{"by handle, fresh", memoryOf, func(*testing.T) {}, false},
		{"by handle, reused", memoryOf, func(*testing.T) {}, true},
		// A fresh one the driver refuses: TestDescriptorOfNoAllocation.
		{"by descriptor, reused", shareableOf, needShareable, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.need(t)
			s := connect(t, start(t, 0), 0, transport.Config{}, c.memory)
			if c.reused {
				must(s.share(t))(t)
			}
			// Twice what the allocation holds from the region on, where granules make it larger.
			size := 2 * int64(s.advertised(t)["allocation_bytes"].(float64))
			_, err := s.initiator.Import(beyond(t, s, size))
			says(t, err, transport.ErrProtocol, "open the peer's GPU memory", "region 77", "of an allocation that is of")
			// Nothing of it stays, and the connection lives.
			s.writeAll(t, must(s.share(t))(t)[0])
			s.takeBack(t)
		})
	}
}

// TestRegionBeyondItsBlock: memory of less than 2 MiB does not begin where the block does
// that its handle opens. So 2 MiB are too many from there on.
func TestRegionBeyondItsBlock(t *testing.T) {
	testdouble.Only(t)
	s := connect(t, start(t, 0), 0, transport.Config{})
	_, err := s.initiator.Import(beyond(t, s, 2<<20))
	says(t, err, transport.ErrProtocol, "region 77: 2097152 bytes at offset 4608 of an allocation that is of")
	s.writeAll(t, must(s.share(t))(t)[0])
	s.takeBack(t)
}

// TestAllocateIsApart: what an endpoint makes has blocks of 2 MiB of its own, which a
// handle opens whole, and is as large as was asked for.
func TestAllocateIsApart(t *testing.T) {
	s := connect(t, start(t, 0), 0, transport.Config{})
	own := s.target.(transport.Allocator)
	m := must(own.Allocate(4096))(t)
	if m.Length != 4096 {
		t.Errorf("%d bytes, want 4096", m.Length)
	}
	says(t, s.target.(transport.Copier).CopyIn(m, 4095, make([]byte, 2)), transport.ErrBounds)
	s.region = must(s.target.Register(m))(t)
	if r := s.advertised(t); r["size_bytes"] != 4096. || r["offset_bytes"] != 0. || r["allocation_bytes"] != 2097152. {
		t.Errorf("advertised %v, want 4096 bytes from the beginning of 2097152 on", r)
	}
	if !testdouble.Real() { // whose devices may have it
		_, err := own.Allocate(1<<40 + 1)
		contains(t, err, "1099511627777 bytes, where")
	}
	if err := errors.Join(s.initiator.Close(), s.target.Close(), s.memory.Free()); err != nil {
		t.Error(err)
	}
}

// writeAll writes the whole region.
func (s *session) writeAll(t *testing.T, to transport.RemoteRegion) {
	t.Helper()
	if err := s.initiator.Post(s.write(to, 1)); err != nil {
		t.Fatal(err)
	}
	if c := wait(t, s.initiator); c.Err != nil {
		t.Error(c.Err)
	}
}

// takeBack frees the target's memory, which the double refuses while it is open, and ends
// the session.
func (s *session) takeBack(t *testing.T) {
	t.Helper()
	if err := errors.Join(s.target.Deregister(s.region), s.memory.Free()); err != nil {
		t.Errorf("the target's memory is open still: %v", err)
	}
	if err := errors.Join(s.initiator.Close(), s.target.Close()); err != nil {
		t.Errorf("close: %v", err)
	}
}

// TestSizeUnknown has the driver not know what a handle opened, and fail otherwise. The
// first range that the initiator asks for is that of its own memory.
func TestSizeUnknown(t *testing.T) {
	testdouble.Only(t)
	for code, want := range map[string]string{"1": "", "500": "", "801": "", "999": "cuMemGetAddressRange_v2"} {
		t.Run(code, func(t *testing.T) {
			s := connect(t, start(t, 0, "CUDA_DOUBLE_FAIL=cuMemGetAddressRange_v2:2:"+code), 0, transport.Config{})
			remote, err := s.share(t)
			switch {
			case want != "":
				contains(t, err, want)
			case err != nil:
				t.Errorf("what the driver does not say is taken from the peer: %v", err)
			default:
				s.writeAll(t, remote[0])
			}
			s.takeBack(t)
		})
	}
}
