package cuda

import (
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"kvbench/internal/cudadrv"
	"kvbench/internal/cudadrv/testdouble"
	"kvbench/transport"
)

// say writes a frame with n file descriptors beside it.
func say(t *testing.T, to *net.UnixConn, f frame, n int) {
	t.Helper()
	fds := make([]int, n)
	for i := range fds {
		file, err := os.Open(os.DevNull)
		if err != nil {
			t.Error(err)
			return
		}
		defer file.Close()
		fds[i] = int(file.Fd())
	}
	var b [frameSize]byte
	f.put(&b)
	var beside []byte
	if n > 0 {
		beside = syscall.UnixRights(fds...)
	}
	if _, _, err := to.WriteMsgUnix(b[:], beside, nil); err != nil {
		t.Error(err)
	}
}

// hear reads a frame of a type.
func hear(t *testing.T, from *net.UnixConn, want frameType) frame {
	t.Helper()
	in := inbox{from: from}
	var b [frameSize]byte
	f, file, err := in.read(&b)
	if err != nil || f.typ != want || file != nil {
		t.Errorf("got %+v, file %v, %v; want a frame of type %d", f, file, err, want)
	}
	return f
}

// devNulls counts the descriptors of what say sends.
func devNulls(t *testing.T) (n int) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range all {
		if to, err := os.Readlink("/proc/self/fd/" + entry.Name()); err == nil && to == os.DevNull {
			n++
		}
	}
	return n
}

// TestHostileDescriptors has the peer send descriptors as none should, while the initiator
// waits for that of region 3.
func TestHostileDescriptors(t *testing.T) {
	for name, c := range map[string]struct {
		frame frame
		n     int
		says  string
	}{
		"none":                 {frame{typ: frameDescriptor, region: 3}, 0, "frame of type 7 with 0 file descriptors, where it should have 1"},
		"two":                  {frame{typ: frameDescriptor, region: 3}, 2, "with 2 file descriptors"},
		"nine":                 {frame{typ: frameDescriptor, region: 3}, 9, "with more than 4 file descriptors"},
		"of another region":    {frame{typ: frameDescriptor, region: 4}, 1, "file descriptor of region 4, which was not asked for"},
		"beside a refusal":     {frame{typ: frameDescriptor, region: 3, slot: 2}, 1, "with 1 file descriptors, where it should have 0"},
		"beside a withdrawal":  {frame{typ: frameWithdraw, region: 3}, 1, "frame of type 4 with 1 file descriptors, where it should have 0"},
		"beside unknown frame": {frame{typ: 99}, 1, "frame type 99"},
	} {
		t.Run(name, func(t *testing.T) {
			before := devNulls(t)
			l, peer := rawLink(t)
			in := newInitiator(l)
			var peers sync.WaitGroup
			peers.Go(func() {
				hear(t, peer, frameWant)
				say(t, peer, c.frame, c.n)
			})
			file, err := in.askDescriptor(3)
			peers.Wait()
			if file != nil || !errors.Is(err, transport.ErrPeer) || !errors.Is(err, transport.ErrProtocol) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, %v; want an error that wraps ErrPeer and ErrProtocol and says %q", file, err, c.says)
			}
			if err := in.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
			if after := devNulls(t); after > before {
				t.Errorf("%d descriptors are open, where %d were", after, before)
			}
		})
	}
}

// TestHostileInitiatorDescriptors sends a target descriptors.
func TestHostileInitiatorDescriptors(t *testing.T) {
	for name, f := range map[string]frame{
		"as a target does": {typ: frameDescriptor, region: 1},
		"beside a frame":   {typ: frameDevice},
	} {
		t.Run(name, func(t *testing.T) {
			before := devNulls(t)
			l, peer := rawLink(t)
			target := newTarget(l)
			say(t, peer, f, 1)
			peer.CloseWrite()
			var notices [1]transport.Notice
			if n, err := target.Notifications(t.Context(), notices[:]); n != 0 || !errors.Is(err, transport.ErrProtocol) {
				t.Errorf("%d notices, error %v", n, err)
			}
			if err := target.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
			if after := devNulls(t); after > before {
				t.Errorf("%d descriptors are open, where %d were", after, before)
			}
		})
	}
}

// TestDescriptorRefused has the target say why there is none.
func TestDescriptorRefused(t *testing.T) {
	for slot, c := range map[uint32]struct {
		want error
		says string
	}{
		400: {transport.ErrRegion, "open region 3, which the peer has withdrawn"},
		2:   {cudadrv.OutOfMemory, "open region 3: the peer's driver made no file descriptor of its memory: CUDA error 2"},
	} {
		l, peer := rawLink(t)
		in := newInitiator(l)
		var peers sync.WaitGroup
		peers.Go(func() {
			hear(t, peer, frameWant)
			say(t, peer, frame{typ: frameDescriptor, region: 3, slot: slot}, 0)
		})
		if file, err := in.askDescriptor(3); file != nil || !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("slot %d: got %v, %v", slot, file, err)
		}
		if err := in.Err(); err != nil {
			t.Errorf("slot %d: the connection ended: %v", slot, err)
		}
		peers.Wait()
		in.Close()
	}
}

// TestDescriptorNeverComes: a target that does not answer ends the connection.
func TestDescriptorNeverComes(t *testing.T) {
	l, _ := rawLink(t)
	l.cfg.PeerTimeout = 500 * time.Millisecond
	in := newInitiator(l)
	defer in.Close()
	if _, err := in.askDescriptor(3); !errors.Is(err, transport.ErrPeer) || !strings.Contains(err.Error(), "it sent no file descriptor of region 3 within 500ms") {
		t.Errorf("got %v", err)
	}
}

// TestTooManyFilesOpen has a descriptor come while this process may open no more.
func TestTooManyFilesOpen(t *testing.T) {
	before := devNulls(t)
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	l, peer := rawLink(t)
	in := newInitiator(l)
	var peers sync.WaitGroup
	peers.Go(func() {
		hear(t, peer, frameWant)
		none := limit
		none.Cur = 0
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
			t.Error(err)
		}
		var b [frameSize]byte
		frame{typ: frameDescriptor, region: 3}.put(&b)
		if _, _, err := peer.WriteMsgUnix(b[:], syscall.UnixRights(int(file.Fd())), nil); err != nil {
			t.Error(err)
		}
	})
	_, err = in.askDescriptor(3)
	peers.Wait()
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, transport.ErrLocal) || errors.Is(err, transport.ErrPeer) || errors.Is(err, transport.ErrProtocol) || !strings.Contains(err.Error(), "raise the limit (ulimit -n)") {
		t.Errorf("got %v", err)
	}
	if err := errors.Join(in.Close(), file.Close()); err != nil {
		t.Error(err)
	}
	if after := devNulls(t); after > before {
		t.Errorf("%d descriptors are open, where %d were", after, before)
	}
}

// TestWantOfGoneRegion: a target answers an initiator that could not know.
func TestWantOfGoneRegion(t *testing.T) {
	l, peer := rawLink(t)
	target := newTarget(l)
	r := target.regions.add(nil, transport.Memory{Kind: transport.CUDAMemory, Length: 1}, cudadrv.Exported{Shareable: true})
	target.regions.advertise(r.id)
	r.withdraw()
	for _, id := range []uint32{r.id, 77} {
		say(t, peer, frame{typ: frameWant, region: id}, 0)
		if f := hear(t, peer, frameDescriptor); f.region != id || f.slot != 400 {
			t.Errorf("region %d: %+v", id, f)
		}
	}
	peer.CloseWrite()
	if err := target.Close(); err != nil {
		t.Error(err)
	}
}

// TestDescriptorOfNoAllocation has the driver refuse what the peer sent.
func TestDescriptorOfNoAllocation(t *testing.T) {
	testdouble.Only(t)
	before := devNulls(t)
	d, err := openDriver()
	if err != nil {
		t.Fatal(err)
	}
	l, peer := rawLink(t)
	l.driver = d
	in := newInitiator(l)
	own, err := in.Allocate(4096)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.Register(own); err != nil {
		t.Fatal(err)
	}
	var peers sync.WaitGroup
	peers.Go(func() {
		hear(t, peer, frameDevice)
		hear(t, peer, frameWant)
		say(t, peer, frame{typ: frameDescriptor, region: 3}, 1)
	})
	device := in.context.Device.UUID
	_, err = in.Import(mustMarshal([]advertised{{
		ID: 3, Size: 1, Device: device.Bytes[:], Sharing: byDescriptor, Handle: make([]byte, cudadrv.HandleSize), Allocation: 2 << 20,
	}}))
	peers.Wait()
	if !errors.Is(err, transport.ErrProtocol) || !strings.Contains(err.Error(), "cuMemImportFromShareableHandle: CUDA_ERROR_INVALID_VALUE") ||
		!strings.Contains(err.Error(), "is no allocation of the size that it said") {
		t.Errorf("got %v", err)
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	if after := devNulls(t); after > before {
		t.Errorf("%d descriptors are open, where %d were", after, before)
	}
}
