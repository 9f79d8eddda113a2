package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"kvbench/internal/testenv"
	"kvbench/results"
)

// The link that these tests run on, whose truth is known: tbf counts 1514 bytes
// for each frame of 1448 bytes of payload.
const (
	linkRate    = 1e9 / 8                  // bytes a second
	linkGoodput = linkRate * 1448.0 / 1514 // 119.6e6
)

// linkBurst is what the shaper lets pass at once, bytes: 8 ms of its rate. A shaper that is
// held up for longer than that loses some of its rate; what it saves up during a pause
// passes unshaped.
const linkBurst = 1_000_000

// netnsLink is the script that makes two hosts of this one.
func netnsLink(t *testing.T) string {
	t.Helper()
	script, err := filepath.Abs("../../scripts/netns-link")
	if err != nil {
		t.Fatal(err)
	}
	return script
}

// twoHosts reports why network namespaces cannot be made here, or nil.
var twoHosts = sync.OnceValue(func() error {
	script, err := filepath.Abs("../../scripts/netns-link")
	if err != nil {
		return err
	}
	if out, err := exec.Command(script, "--port", "0", "--", "true", "--", "true").CombinedOutput(); err != nil {
		return fmt.Errorf("two hosts cannot be made here: %s", bytes.TrimSpace(out))
	}
	return nil
})

// needTwoHosts ends the test if network namespaces cannot be made.
func needTwoHosts(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("two hosts take a while")
	}
	if err := twoHosts(); err != nil {
		testenv.Skip(t, "netns", err.Error())
	}
}

// onLink runs a server command and a client command on two hosts that a link of
// 1 Gbit/s at MTU 1500 joins.
func onLink(t *testing.T, server, client []string) output {
	t.Helper()
	args := append([]string{"--rate", "1gbit", "--mtu", "1500", "--burst", fmt.Sprint(linkBurst), "--"}, server...)
	return launch{}.startProgram(t, netnsLink(t), append(append(args, "--"), client...)...).end(2 * patience)
}

// self is this program's command line.
func self(t *testing.T, args ...string) []string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return append([]string{path}, args...)
}

// measureOnLink runs llama-2-70b over the link. It returns the record, and the kernel's
// counters of the producer's end of the link after the run.
func measureOnLink(t *testing.T, status int, args ...string) (*results.Run, counted) {
	t.Helper()
	dir := t.TempDir()
	out := filepath.Join(dir, "run.json")
	producer := self(t, append([]string{"producer", "--connect", "10.77.0.2:9400", "--token", "for-a-test", "--calibrate", "off", "--warmup", "1", "--out", out}, args...)...)
	got := onLink(t,
		self(t, "consumer", "--listen", "10.77.0.2:9400", "--token", "for-a-test"),
		append([]string{"sh", "-c", `dir=$0; "$@"; status=$?; tc -s qdisc show dev v0 >$dir/sent; cat /proc/net/dev >$dir/devices; exit $status`, dir}, producer...))
	got.want(t, status)
	if t.Failed() {
		t.FailNow()
	}
	return readRun(t, out), readCounted(t, dir)
}

// counted is the kernel's count of what a host sent and received over a shaped link.
type counted struct {
	sent, packets, dropped int64 // by the shaper: bytes with their Ethernet headers, packets as they go over a wire
	received               int64 // bytes
}

// readCounted reads the output of tc and /proc/net/dev in a directory.
func readCounted(t *testing.T, dir string) (c counted) {
	t.Helper()
	tc, err := os.ReadFile(filepath.Join(dir, "sent"))
	if err != nil {
		t.Fatal(err)
	}
	if _, after, found := strings.Cut(string(tc), " Sent "); !found {
		t.Fatalf("tc prints no count:\n%s", tc)
	} else if _, err := fmt.Sscanf(after, "%d bytes %d pkt (dropped %d,", &c.sent, &c.packets, &c.dropped); err != nil {
		t.Fatalf("%v in the counts of tc:\n%s", err, tc)
	}
	devices, err := os.ReadFile(filepath.Join(dir, "devices"))
	if err != nil {
		t.Fatal(err)
	}
	if _, after, found := strings.Cut(string(devices), "v0:"); !found {
		t.Fatalf("no v0 in\n%s", devices)
	} else if _, err := fmt.Sscan(after, &c.received); err != nil {
		t.Fatalf("%v in\n%s", err, devices)
	}
	return c
}

// TestTwoHosts moves requests over a link, in both directions of initiation. The record
// names the link's device and holds the prediction that is worked out by hand. The kernel
// counted each byte once, and no request is faster than the link. That none is slower is
// in TestTwoHostsGoodput.
func TestTwoHosts(t *testing.T) {
	needTwoHosts(t)
	for _, direction := range []string{"push", "pull"} {
		t.Run(direction, func(t *testing.T) {
			t.Parallel()
			const requests, warmup = 3, 1
			r, link := measureOnLink(t, exitDone, "--context", "16,32", "--requests", fmt.Sprint(requests), "--direction", direction, "--link", "1Gbit/s", "--mtu", "1500", "--verify", "full")
			checkOnLink(t, r, linkBurst)
			var payload int64
			for _, c := range r.Cells {
				payload += (requests + warmup) * c.Bytes
			}
			link.check(t, payload)
		})
	}
}

// check compares what crossed a link at MTU 1500 from producer to consumer with the
// payload, bytes: each frame of 1514 carries 1448 of it at most. Control messages, segments
// that are not full and those that TCP sends again add little; a request that moves twice,
// or back, would add a tenth at least.
func (c counted) check(t *testing.T, payload int64) {
	t.Helper()
	least := float64(payload) * 1514 / 1448
	if sent := float64(c.sent); sent < least || sent > 1.05*least+100_000 {
		t.Errorf("the link carried %d bytes in %d packets, %d dropped; %d of payload are %.0f at least", c.sent, c.packets, c.dropped, payload, least)
	}
	if full := payload / 1448; c.packets < full {
		t.Errorf("%d packets carried %d bytes, which fill %d", c.packets, payload, full)
	}
	if float64(c.received) > 0.1*least {
		t.Errorf("%d bytes came back, where acknowledgements alone go", c.received)
	}
}

// checkOnLink checks what a run on the link reports beside its pace. The link passes a
// burst, in bytes, at once after a pause.
func checkOnLink(t *testing.T, r *results.Run, burst float64) {
	t.Helper()
	if r.Producer.Host.Device.Name != "v0" || r.Producer.Host.Device.MTU != 1500 || !strings.Contains(r.Transport.Lane, "v0") {
		t.Errorf("the record names device %+v and lane %q", r.Producer.Host.Device, r.Transport.Lane)
	}
	for _, c := range r.Cells {
		if want := 327680 * c.ContextTokens; c.Bytes != want || c.Verify.Mismatched != 0 || c.Verify.Checked == 0 {
			t.Errorf("%d bytes at %d tokens, verification %+v", c.Bytes, c.ContextTokens, c.Verify)
		}
		// A token bucket never lets more pass, however the host was held up.
		if fastest, least := fastestRequest(t, c), (float64(c.Bytes)-burst)/linkGoodput; fastest < 0.99*least {
			t.Errorf("%d tokens: a request of %d bytes took %.4g s, the link takes %.4g s after a pause", c.ContextTokens, c.Bytes, fastest, least)
		}
		// The spec counts every byte on a wire, 1538 for a frame of 1448 of payload. The
		// shaper leaves 24 of them out.
		seconds, spec := float64(*c.Latency.Service.P50Ns)/1e9, float64(c.Bytes)/(linkRate*1448/1538)
		if p := c.Predicted.Spec; !within(p.Seconds, spec, 1e-3) || !within(p.Ratio, seconds/spec, 1e-3) {
			t.Errorf("%d tokens: predicted %.6g s, by hand %.6g; ratio %.4f, by hand %.4f", c.ContextTokens, p.Seconds, spec, p.Ratio, seconds/spec)
		}
	}
}

// fastestRequest is the shortest service time of a cell, in seconds.
func fastestRequest(t *testing.T, c results.Cell) float64 {
	t.Helper()
	h, err := c.Latency.Service.Histogram()
	if err != nil {
		t.Fatal(err)
	}
	return h.Smallest(1).Seconds()
}

// TestTwoHostsShaped asks for the prediction that the shaper's own arithmetic makes. The
// verdict is that of the measured ratio and its interval.
func TestTwoHostsShaped(t *testing.T) {
	needTwoHosts(t)
	t.Parallel()
	r, _ := measureOnLink(t, exitDone, "--context", "32", "--requests", "3", "--link", "1Gbit/s", "--framing", "shaped", "--tolerance", "10%")
	p, v := r.Cells[0].Predicted.Spec, r.Cells[0].Verdict
	if want := float64(r.Cells[0].Bytes) / linkGoodput; !within(p.Seconds, want, 1e-6) {
		t.Errorf("predicted %.6f s, by hand %.6f", p.Seconds, want)
	}
	if r.Link.MTU != 1500 { // from the device: --mtu was not given
		t.Errorf("MTU %d", r.Link.MTU)
	}
	inside := p.Ratio > 0.9 && p.Ratio < 1.1
	if inside && v.Status == "fail" || !inside && v.Status == "pass" {
		t.Errorf("ratio %.4f at a tolerance of 10 %%: %s, %s", p.Ratio, v.Status, v.Reason)
	}
}

// TestWrongLinkIsCaught: a link that is named too fast fails the check, with a reason.
func TestWrongLinkIsCaught(t *testing.T) {
	needTwoHosts(t)
	t.Parallel()
	r, _ := measureOnLink(t, exitOutside, "--context", "32", "--requests", "3", "--link", "100gbe", "--check", "--tolerance", "15%")
	if v := r.Cells[0].Verdict; v.Status != "fail" || v.Limiter != "slower device" || v.Evidence == "" {
		t.Errorf("verdict %+v", v)
	}
}

// TestPrintedCommand runs, on the other host, the command that a consumer prints.
func TestPrintedCommand(t *testing.T) {
	needTwoHosts(t)
	t.Parallel()
	printed := filepath.Join(t.TempDir(), "printed")
	// What sh finds as $0 and $@ are the words after its script.
	got := onLink(t,
		append([]string{"sh", "-c", `exec "$0" "$@" >` + printed}, self(t, "consumer", "--listen", "0.0.0.0:9400")...),
		append([]string{"sh", "-c", `until command=$(sed -n 's/^  kvbench //p' ` + printed + ` | grep .); do sleep 0.05; done; exec "$0" $command "$@"`}, self(t, small...)...))
	got.want(t, exitDone)
	if b, err := os.ReadFile(printed); err != nil || !strings.Contains(string(b), "kvbench producer --connect 10.77.0.2:9400 --token ") {
		t.Errorf("the consumer printed %q, %v", b, err)
	}
}

// TestTwoHostsLinkLocal: the two ends of a link know it under names of their own, and a
// link-local address is dialled in the dialler's, for control and data and with more streams.
func TestTwoHostsLinkLocal(t *testing.T) {
	needTwoHosts(t)
	t.Parallel()
	printed := filepath.Join(t.TempDir(), "printed")
	got := onLink(t,
		append([]string{"sh", "-c", `ip link set v0 down && ip link set v0 name w7 && ip addr flush dev w7 && ip link set w7 up &&
			ip addr add fe80::2/64 dev w7 nodad && exec "$0" "$@" >` + printed},
			self(t, "consumer", "--listen", "[fe80::2%w7]:9400", "--token", "for-a-test")...),
		append([]string{"sh", "-c", `ip addr add fe80::1/64 dev v0 nodad && exec "$0" "$@"`},
			self(t, append([]string{"producer", "--connect", "[fe80::2%v0]:9400", "--token", "for-a-test", "--streams", "2"}, small...)...)...))
	got.want(t, exitDone)
	b, err := os.ReadFile(printed)
	for _, says := range []string{"listening on [fe80::2%w7]:9400\n", "--connect [fe80::2%INTERFACE]:9400 --token ", "INTERFACE is the one of that host"} {
		if !strings.Contains(string(b), says) {
			t.Errorf("the consumer printed %q, %v, not %q", b, err, says)
		}
	}
}

// TestNetnsLinkCleansUp after each signal, and passes on what the client says.
func TestNetnsLinkCleansUp(t *testing.T) {
	needTwoHosts(t)
	// A shell cannot trap what was ignored when it began, as signals are under nohup or
	// in the background; what this process handles is not ignored by its children.
	handled := make(chan os.Signal, 1)
	signal.Notify(handled, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(handled)
	for _, c := range []struct {
		signal os.Signal
		status int
	}{{nil, 7}, {os.Interrupt, 130}, {syscall.SIGTERM, 143}, {syscall.SIGHUP, 129}} {
		client := "exit 7"
		if c.signal != nil {
			client = "echo running; exec sleep 60"
		}
		p := launch{}.startProgram(t, netnsLink(t), "--port", "0", "--", "sleep", "60", "--", "sh", "-c", client)
		if c.signal != nil {
			p.stdout.await(t, "running")
			p.signal(c.signal)
		}
		if got := p.end(patience); got.status != c.status {
			t.Errorf("after %v: exit status %d, want %d\n%s", c.signal, got.status, c.status, got.stderr)
		}
		out, err := exec.Command("ip", "netns", "list").Output()
		if err != nil {
			t.Fatal(err)
		}
		if name := fmt.Sprintf("kvbench-%d-", p.cmd.Process.Pid); strings.Contains(string(out), name) {
			t.Errorf("after %v: namespaces are left:\n%s", c.signal, out)
		}
		noneLeft(t)
	}
}

// TestNetnsLinkUsage needs neither root nor namespaces.
func TestNetnsLinkUsage(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("no bash here")
	}
	for _, c := range []struct {
		args string
		says string
	}{
		{"", "give two commands"},
		{"-- true", "give two commands"},
		{"--rate fast -- true -- true", "not a rate"},
		{"--rate", "needs a value"},
		{"--mtu big -- true -- true", "whole numbers"},
		{"--nope -- true -- true", "unknown argument --nope"},
	} {
		var stderr bytes.Buffer
		cmd := exec.Command(netnsLink(t), strings.Fields(c.args)...)
		cmd.Stderr = &stderr
		_ = cmd.Run()
		if cmd.ProcessState.ExitCode() != 2 || !strings.Contains(stderr.String(), c.says) || !strings.Contains(stderr.String(), "usage:") {
			t.Errorf("netns-link %s: status %d, stderr %q", c.args, cmd.ProcessState.ExitCode(), stderr.String())
		}
	}
}
