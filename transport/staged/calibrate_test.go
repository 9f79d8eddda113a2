package staged_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"kvbench/internal/cudadrv/testdouble"
	"kvbench/transport"
	"kvbench/transport/transporttest/remote"
)

// copied is when a process copied between device and host, in ns of the monotonic clock.
type copied struct {
	copies     int
	first, end int64
}

// readTrace reads the double's trace, by process.
func readTrace(t *testing.T, file string) map[int]copied {
	t.Helper()
	all := make(map[int]copied)
	for line := range bytes.Lines(must(os.ReadFile(file))(t)) {
		var pid int
		var begin, end int64
		if _, err := fmt.Sscan(string(line), &pid, &begin, &end); err != nil {
			t.Fatalf("trace %q: %v", line, err)
		}
		c := all[pid]
		if c.copies == 0 || begin < c.first {
			c.first = begin
		}
		c.end = max(c.end, end)
		c.copies++
		all[pid] = c
	}
	return all
}

// startTwo starts two processes with the transport.
func startTwo(t *testing.T, env ...string) (sides [2]*remote.Transport) {
	t.Helper()
	testdouble.Only(t)
	for i := range sides {
		cmd := testdouble.Command(append(env, childVar+"=1")...)
		cmd.Stderr = os.Stderr
		side := must(remote.Start(cmd))(t)
		t.Cleanup(func() { side.Close() })
		sides[i] = side
	}
	return sides
}

// TestSidesAreTimedApart: the initiator copies only once the target has timed its copies,
// whoever dials. At 400 MB/s each side takes a tenth of a second, far longer than it is
// between the two.
func TestSidesAreTimedApart(t *testing.T) {
	for name, targetDials := range map[string]bool{"initiator dials": false, "target dials": true} {
		t.Run(name, func(t *testing.T) {
			trace := filepath.Join(t.TempDir(), "copies")
			sides := startTwo(t, "CUDA_DOUBLE_COPY_RATE=400000000", "CUDA_DOUBLE_TRACE="+trace)
			here, there := meet(t, sides[0], sides[1], transport.Config{}, targetDials)
			if err := errors.Join(here.Close(), there.Close()); err != nil {
				t.Error(err)
			}
			initiator, target := sides[1].Process().Pid, sides[0].Process().Pid
			if targetDials {
				initiator, target = target, initiator
			}
			all := readTrace(t, trace)
			// A size is timed five times in each direction, and there is one at least.
			if len(all) != 2 || all[target].copies < 10 || all[initiator].copies < 10 {
				t.Fatalf("copies by process: %+v; want those of %d and %d", all, target, initiator)
			}
			if all[initiator].first < all[target].end {
				t.Errorf("the initiator copies %v ns before the target has ended", all[target].end-all[initiator].first)
			}
		})
	}
}
