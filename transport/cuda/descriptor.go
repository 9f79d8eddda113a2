package cuda

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"kvbench/internal/cudadrv"
	"kvbench/transport"
)

// unknownFailure is the reason in a descriptor frame if the failure was not a driver
// error (CUDA_ERROR_UNKNOWN).
const unknownFailure = 999

// giveDescriptor answers a want frame with a file descriptor of the region's
// allocation, or with the reason why there is none.
func (t *target) giveDescriptor(id uint32) error {
	r := t.regions.get(id)
	if r != nil && (!t.regions.known(r) || !r.export.Shareable) {
		return fmt.Errorf("peer wants a file descriptor of region %d, which has none: %w", id, transport.ErrProtocol)
	}
	answer := frame{typ: frameDescriptor, region: id}
	if r == nil || r.withdrawn() {
		answer.slot = uint32(cudadrv.InvalidHandle) // the initiator asked before it received the withdraw frame
		return t.send(answer)
	}
	file, err := r.context.ExportDescriptor(r.pointer)
	if err != nil {
		answer.slot = unknownFailure
		if refused := (*cudadrv.Error)(nil); errors.As(err, &refused) {
			answer.slot = uint32(refused.Result)
		}
		return t.send(answer)
	}
	return errors.Join(t.sendDescriptor(answer, file), file.Close())
}

// sendDescriptor writes a frame with a file descriptor beside it.
func (c *connection) sendDescriptor(f frame, file *os.File) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	f.put(&c.out)
	n, _, err := c.net.WriteMsgUnix(c.out[:], syscall.UnixRights(int(file.Fd())), nil)
	if err == nil && n < len(c.out) {
		_, err = c.net.Write(c.out[n:])
	}
	if err != nil {
		return peerError(err)
	}
	return nil
}

// wanted holds the one file descriptor that the initiator waits for.
type wanted struct {
	mu     sync.Mutex
	region uint32
	answer chan given // nil if no answer is awaited
}

// given is the target's answer.
type given struct {
	file   *os.File
	reason cudadrv.Result // why file is nil
}

// expect starts waiting for a region's file descriptor.
func (w *wanted) expect(region uint32) <-chan given {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.region, w.answer = region, make(chan given, 1)
	return w.answer
}

// put delivers an answer. It returns false if no caller waits for it.
func (w *wanted) put(region uint32, g given) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.answer == nil || w.region != region {
		return false
	}
	w.answer <- g
	w.answer = nil
	return true
}

// forget ends the wait and closes a file that came too late.
func (w *wanted) forget(answer <-chan given) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = nil
	select {
	case g := <-answer:
		if g.file != nil {
			g.file.Close()
		}
	default:
	}
}

// takeDescriptor delivers a descriptor frame to the goroutine that waits for it.
func (in *initiator) takeDescriptor(f frame, file *os.File) error {
	if in.wanted.put(f.region, given{file, cudadrv.Result(f.slot)}) {
		return nil
	}
	err := fmt.Errorf("file descriptor of region %d, which was not asked for: %w", f.region, transport.ErrProtocol)
	if file != nil {
		err = errors.Join(err, file.Close())
	}
	return err
}

// askDescriptor requests a file descriptor of a region's allocation from the target.
// The caller must close it. If the target does not answer, the connection ends.
func (in *initiator) askDescriptor(region uint32) (*os.File, error) {
	answer := in.wanted.expect(region)
	defer in.wanted.forget(answer)
	if err := in.send(frame{typ: frameWant, region: region}); err != nil {
		in.fail(err)
		return nil, err
	}
	patience := time.NewTimer(in.cfg.PeerTimeout)
	defer patience.Stop()
	select {
	case g := <-answer:
		if g.file == nil {
			return nil, noDescriptor(region, g.reason)
		}
		return g.file, nil
	case <-in.closing:
		return nil, in.Err()
	case <-patience.C:
		in.fail(fmt.Errorf("%w: it sent no file descriptor of region %d within %v", transport.ErrPeer, region, in.cfg.PeerTimeout))
		return nil, in.Err()
	}
}

// noDescriptor returns the error for a refused file descriptor.
func noDescriptor(region uint32, reason cudadrv.Result) error {
	if reason == cudadrv.InvalidHandle {
		return fmt.Errorf("open region %d, which the peer has withdrawn: %w", region, transport.ErrRegion)
	}
	return fmt.Errorf("open region %d: the peer's driver made no file descriptor of its memory: %w; the peer may have too many open (ulimit -n), or have freed the memory", region, reason)
}
