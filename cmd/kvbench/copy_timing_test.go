//go:build timing

package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"kvbench/internal/testenv"
	"kvbench/results"
)

// copyMode makes the test binary one end of a plain copy over TCP, which knows nothing of
// kvbench: the reference that runs over the same link are compared with. Its value is
// "serve", or "STREAMS BYTES REQUESTS PAUSE" of the sender.
const copyMode = "RUN_KVBENCH_COPY"

const copyAddr = "10.77.0.2:9401"

func init() {
	mode := os.Getenv(copyMode)
	if mode == "" {
		return
	}
	var err error
	if mode == "serve" {
		err = serveCopies()
	} else {
		err = sendCopies(mode)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "plain copy:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serveCopies reads requests and answers each with a byte. A connection begins with the
// bytes of each of its requests, as eight digits of hexadecimal.
func serveCopies() error {
	l, err := net.Listen("tcp", copyAddr)
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			var bytes int64
			if _, err := fmt.Fscanf(io.LimitReader(c, 8), "%8x", &bytes); err != nil {
				return
			}
			for {
				if _, err := io.CopyN(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, bytes); err != nil {
					return
				}
				if _, err := c.Write([]byte{1}); err != nil {
					return
				}
			}
		}()
	}
}

// sendCopies moves requests one after the other, each spread over all streams, and prints
// the median of their times and the shortest, in seconds. The first is not counted.
func sendCopies(mode string) error {
	var streams, requests int
	var bytes int64
	var between string
	if _, err := fmt.Sscan(mode, &streams, &bytes, &requests, &between); err != nil {
		return err
	}
	pause, err := time.ParseDuration(between)
	if err != nil {
		return err
	}
	each := bytes / int64(streams)
	var conns []net.Conn
	for range streams {
		c, err := dialCopy()
		if err != nil {
			return err
		}
		defer c.Close()
		fmt.Fprintf(c, "%08x", each)
		conns = append(conns, c)
	}
	piece := make([]byte, 256<<10)
	var seconds []float64
	for i := range 1 + requests {
		time.Sleep(pause)
		begin := time.Now()
		var wg sync.WaitGroup
		failed := make(chan error, len(conns))
		for _, c := range conns {
			wg.Go(func() {
				for left := each; left > 0; left -= int64(len(piece)) {
					if _, err := c.Write(piece[:min(left, int64(len(piece)))]); err != nil {
						failed <- err
						return
					}
				}
				if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
					failed <- err
				}
			})
		}
		wg.Wait()
		select {
		case err := <-failed:
			return err
		default:
		}
		if i > 0 {
			seconds = append(seconds, time.Since(begin).Seconds())
		}
	}
	fmt.Println(median(seconds), slices.Min(seconds))
	return nil
}

// dialCopy connects to the other end, which may have to start first.
func dialCopy() (c net.Conn, err error) {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if c, err = net.Dial("tcp", copyAddr); err == nil {
			return c, nil
		}
	}
	return nil, err
}

// plain is a copy that a run is compared with.
type plain struct {
	streams  int
	bytes    int64 // of a request
	requests int
	pause    time.Duration // before each, in which a link saves up its burst
}

// round is a run over a link and the plain copies just before and just after it: the
// median seconds of a request each.
type round struct {
	*results.Run
	before, after float64
	// fastest is the copies' shortest request, the mean of before and after.
	fastest float64
}

// reference is the plain copy's time beside the run, in seconds.
func (r round) reference() float64 { return (r.before + r.after) / 2 }

// alternate runs plain copies and producers in turn over a link of netns-link's own
// arguments, at an MTU.
func alternate(t *testing.T, rounds int, link []string, p plain, args ...string) []round {
	t.Helper()
	if testenv.Race {
		t.Skip("the race detector slows both hosts; scripts/test-timing runs this without it")
	}
	needTwoHosts(t)
	dir := t.TempDir()
	const turns = `dir=$0 rounds=$1; shift
copy() { RUN_KVBENCH_COPY="$PLAIN" "$1" >$dir/copy.$i || exit; }
i=0
while copy "$1"; [ $i -lt $rounds ]; do "$@" --out $dir/$i.json || exit; i=$((i + 1)); done`
	server := with([]string{"sh", "-c", `RUN_KVBENCH_COPY=serve "$0" & exec "$0" "$@"`}, self(t, "consumer", "--listen", "10.77.0.2:9400", "--token", "t", "--max-sessions", "2")...)
	client := with([]string{"sh", "-c", turns, dir, fmt.Sprint(rounds)}, self(t, with([]string{"producer", "--connect", "10.77.0.2:9400", "--token", "t"}, args...)...)...)
	line := append(with(link, "--"), append(append(server, "--"), client...)...)
	launch{env: []string{fmt.Sprintf("PLAIN=%d %d %d %v", p.streams, p.bytes, p.requests, p.pause)}}.
		startProgram(t, netnsLink(t), line...).end(20*patience).want(t, exitDone)
	if t.Failed() {
		t.FailNow()
	}
	seconds := func(i int) (median, fastest float64) {
		text, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("copy.%d", i)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscan(string(text), &median, &fastest); err != nil {
			t.Fatalf("%v in %q", err, text)
		}
		return median, fastest
	}
	var all []round
	for i := range rounds {
		before, fastest := seconds(i)
		after, fastestAfter := seconds(i + 1)
		all = append(all, round{readRun(t, filepath.Join(dir, fmt.Sprintf("%d.json", i))), before, after, (fastest + fastestAfter) / 2})
	}
	return all
}

// medianOf is the median of a quantity of an odd number of rounds.
func medianOf(rounds []round, of func(round) float64) float64 {
	var v []float64
	for _, r := range rounds {
		v = append(v, of(r))
	}
	return median(v)
}
