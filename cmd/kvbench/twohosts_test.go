package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
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

// burst is what a shaper may let pass at once in one of several tries, bytes: 2 ms of
// its link's rate, then 4, 8 and 16. A shaper that is held up for longer than that is
// slower than its rate; what it saves up while nothing is sent passes unshaped.
func burst(bytesPerSecond float64, try int) float64 {
	return math.Round(bytesPerSecond * 0.002 * float64(int(1)<<min(try, 3)))
}

// netnsLink is the script that makes two hosts of this one.
func netnsLink(t *testing.T) string {
	t.Helper()
	script, err := filepath.Abs("../../scripts/netns-link")
	if err != nil {
		t.Fatal(err)
	}
	return script
}

// needTwoHosts ends the test where network namespaces cannot be made.
func needTwoHosts(t *testing.T) {
	t.Helper()
	if testenv.Race {
		t.Skip("the race detector slows both hosts: their goodput is not the link's; the build without it runs this")
	}
	if testing.Short() {
		t.Skip("two hosts take a while")
	}
	out, err := exec.Command(netnsLink(t), "--port", "0", "--", "true", "--", "true").CombinedOutput()
	if err != nil {
		testenv.Skip(t, "netns", fmt.Sprintf("two hosts cannot be made here: %s", bytes.TrimSpace(out)))
	}
}

// onLink runs a server command and a client command on two hosts that a link of
// 1 Gbit/s at MTU 1500 joins; try is which of several tries it is, from 0.
func onLink(t *testing.T, try int, server, client []string) output {
	t.Helper()
	args := append([]string{"--rate", "1gbit", "--mtu", "1500", "--burst", fmt.Sprint(int(burst(linkRate, try))), "--"}, server...)
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

// measureOnLink runs llama-2-70b over the link and returns the record.
func measureOnLink(t *testing.T, try, status int, args ...string) *results.Run {
	t.Helper()
	out := filepath.Join(t.TempDir(), "run.json")
	got := onLink(t, try,
		self(t, "consumer", "--listen", "10.77.0.2:9400", "--token", "for-a-test"),
		self(t, append([]string{"producer", "--connect", "10.77.0.2:9400", "--token", "for-a-test", "--calibrate", "off", "--warmup", "1", "--out", out}, args...)...))
	got.want(t, status)
	if t.Failed() {
		t.FailNow()
	}
	return readRun(t, out)
}

// TestTwoHosts measures a link whose goodput is known, in both directions of
// initiation.
func TestTwoHosts(t *testing.T) {
	needTwoHosts(t)
	for _, direction := range []string{"push", "pull"} {
		t.Run(direction, func(t *testing.T) {
			oneOfSix(t, func(try int) string {
				r := measureOnLink(t, try, exitDone, "--context", "128,256", "--requests", "3", "--direction", direction, "--link", "1Gbit/s", "--mtu", "1500", "--verify", "full")
				return strings.Join(offTruth(t, r, burst(linkRate, try)), "; ")
			})
		})
	}
}

// offTruth lists where a record is further from the truth than it may be, on a link
// that passes a burst at once after each pause.
func offTruth(t *testing.T, r *results.Run, burst float64) (wrong []string) {
	t.Helper()
	if r.Producer.Host.Device.Name != "v0" || r.Producer.Host.Device.MTU != 1500 || !strings.Contains(r.Transport.Lane, "v0") {
		t.Errorf("the record names device %+v and lane %q", r.Producer.Host.Device, r.Transport.Lane)
	}
	for _, c := range r.Cells {
		if want := 327680 * c.ContextTokens; c.Bytes != want || c.Verify.Mismatched != 0 || c.Verify.Checked == 0 {
			t.Errorf("%d bytes at %d tokens, verification %+v", c.Bytes, c.ContextTokens, c.Verify)
		}
		seconds := float64(*c.Latency.Service.P50Ns) / 1e9
		slowest, fastest := float64(c.Bytes)/linkGoodput, (float64(c.Bytes)-burst)/linkGoodput
		if seconds > slowest*1.03 || seconds < fastest*0.97 {
			wrong = append(wrong, fmt.Sprintf("%d tokens: %.4g s measured, the link takes %.4g s and %.4g s after a pause", c.ContextTokens, seconds, slowest, fastest))
		}
		// What the record says beside it: the spec counts every byte on a wire, 1538 for a
		// frame of 1448 of payload, of which this shaper leaves 24 out.
		spec := float64(c.Bytes) / (linkRate * 1448 / 1538)
		if p := c.Predicted.Spec; !within(p.Seconds, spec, 1e-3) || !within(p.Ratio, seconds/spec, 1e-3) {
			t.Errorf("%d tokens: predicted %.6g s, by hand %.6g; ratio %.4f, by hand %.4f", c.ContextTokens, p.Seconds, spec, p.Ratio, seconds/spec)
		}
	}
	return wrong
}

// TestTwoHostsShaped asks for the prediction that the shaper's own arithmetic makes.
func TestTwoHostsShaped(t *testing.T) {
	needTwoHosts(t)
	oneOfSix(t, func(try int) string {
		r := measureOnLink(t, try, exitDone, "--context", "128", "--requests", "3", "--link", "1Gbit/s", "--framing", "shaped", "--tolerance", "10%")
		p, v := r.Cells[0].Predicted.Spec, r.Cells[0].Verdict
		if want := float64(r.Cells[0].Bytes) / linkGoodput; !within(p.Seconds, want, 1e-6) {
			t.Errorf("predicted %.6f s, by hand %.6f", p.Seconds, want)
		}
		if r.Link.MTU != 1500 { // from the device: --mtu was not given
			t.Errorf("MTU %d", r.Link.MTU)
		}
		if v.Status == "fail" {
			return fmt.Sprintf("ratio %.4f: %s", p.Ratio, v.Reason)
		}
		return ""
	})
}

// TestWrongLinkIsCaught: a link that is named too fast fails the check, with a reason.
func TestWrongLinkIsCaught(t *testing.T) {
	needTwoHosts(t)
	r := measureOnLink(t, 0, exitOutside, "--context", "64", "--requests", "3", "--link", "100gbe", "--check", "--tolerance", "15%")
	if v := r.Cells[0].Verdict; v.Status != "fail" || v.Limiter != "slower device" || v.Evidence == "" {
		t.Errorf("verdict %+v", v)
	}
}

// TestPrintedCommand runs, on the other host, the command that a consumer prints.
func TestPrintedCommand(t *testing.T) {
	needTwoHosts(t)
	printed := filepath.Join(t.TempDir(), "printed")
	// What sh finds as $0 and $@ are the words after its script.
	got := onLink(t, 0,
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
	printed := filepath.Join(t.TempDir(), "printed")
	got := onLink(t, 0,
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
