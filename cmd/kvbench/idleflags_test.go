package main

import (
	"bytes"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestIdleFlags: a flag that was written and does nothing is refused, with what to do.
func TestIdleFlags(t *testing.T) {
	fit := calibratedRun(t, steady)
	for _, c := range []struct {
		line string
		says []string
	}{
		{"predict --gpus 4", []string{"--gpus", "without --gpu", "h100"}},
		{"predict --gpus 8", []string{"--gpus"}}, // the default, but written
		{"predict --mfu 0.4", []string{"--mfu", "without --gpu"}},
		{"predict --gpu-fp8", []string{"--gpu-fp8", "without --gpu"}},
		{"predict --gpu h100 --prefill 500ms", []string{"--gpu ", "--prefill"}},
		{"predict --gpu h100 --gpus 4 --mfu 0.3 --gpu-fp8 --prefill 500ms", []string{"--gpu ", "--gpus", "--mfu", "--gpu-fp8", "beside a --prefill"}},
		{"predict --prefill 500ms --gpus 4", []string{"--gpus", "beside a --prefill"}},
		{"predict --sweep context --context 4K", []string{"--context", "--sweep context"}},
		{"predict --sweep rate --rate 10/s", []string{"--rate", "--sweep rate"}},
		{"predict --fit " + fit + " --mtu 9000", []string{"--mtu", "fit", "--link"}},
		{"predict --fit " + fit + " --framing off", []string{"--framing", "--link"}},
		{"predict --fit " + fit + " --alpha 1e-5 --gamma 1e-6", []string{"--alpha", "--gamma", "--link"}},
		{"predict --fit " + fit + " --sweep bandwidth", []string{"--sweep", "bandwidth", "--link"}},
		{"predict --mtu 9000 --framing 0.94 --link 100gbe", []string{"--mtu", "--framing"}},
		{"predict --mtu 9000 --framing off --link 100gbe", []string{"--mtu", "--framing"}},
		{"predict --mtu 9000 --link nvlink4,nvlink5", []string{"--mtu", "NVLink"}},
		{"predict --block-tokens 32", []string{"--block-tokens", "--layout paged"}},
		{"predict --fragmentation 0.5", []string{"--fragmentation", "--layout paged"}},
		{"predict --link 100gbe,100GbE", []string{"--link names 100gbe twice"}},
		{"predict --link 100gbe,", []string{"--link has an empty part"}},
		{"predict --link auto", []string{"no path", "100gbe", "--fit"}},

		{"shape --block-tokens 32", []string{"--block-tokens", "--layout paged"}},
		{"shape --cross-layer", []string{"--cross-layer", "--layout paged"}},
		{"shape --list --model opt-66b --tp 2", []string{"--model", "--tp", "--list"}},

		{"loopback --arrivals uniform", []string{"--arrivals", "--rate"}},
		{"producer --connect 127.0.0.1:9 --arrivals uniform", []string{"--arrivals", "--rate"}},
		{"loopback --rate 1/h --duration 2s", []string{"--rate 1/h", "--duration 2s", "0.00056 of a request"}},
		{"loopback --requests 5 --duration 1s", []string{"--requests", "--duration"}},
		{"loopback --prefill 5ms", []string{"--prefill", "--overlap layer"}},
		{"loopback --gpu h100", []string{"--gpu", "--prefill auto"}},
		{"loopback --overlap layer --prefill 5ms --gpu h100", []string{"--gpu", "--prefill auto"}},
		{"producer --connect 127.0.0.1:9 --gpus 4", []string{"--gpus", "--prefill auto"}},
		{"loopback --overlap layer --prefill auto --mfu 0.4", []string{"--mfu", "without --gpu"}},
		{"loopback --overlap layer --prefill auto", []string{"--prefill auto needs --gpu"}},
		{"loopback --mtu 9000", []string{"--mtu", "--link"}},
		{"loopback --framing shaped --alpha 1e-6 --gamma 1e-6", []string{"--framing", "--alpha", "--gamma", "--link"}},
		{"loopback --link 100gbe --mtu 9000 --framing 0.9", []string{"--mtu", "--framing"}},
		{"loopback --calibrate off --check", []string{"--check", "--link", "fit"}},
		{"loopback --check --against spec", []string{"--check", "--against", "--link", "fit"}},
		{"producer --connect 127.0.0.1:9 --check --against fit --calibrate off", []string{"--check", "--against", "--calibrate", "--link"}},
		{"loopback --calibrate off --tolerance 5%", []string{"--tolerance", "--link"}},

		{"consumer --once --max-sessions 2", []string{"--max-sessions", "--once"}},
		{"consumer --listen 127.0.0.1:0 --insecure --token t", []string{"--insecure", "--token"}},
	} {
		t.Run(c.line, func(t *testing.T) {
			kvbench(t, strings.Fields(c.line)...).want(t, exitUsage, with(c.says, "--help")...)
		})
	}
}

// TestFlagsThatCount: the like of what is refused, where it does something.
func TestFlagsThatCount(t *testing.T) {
	fit := calibratedRun(t, steady)
	for _, line := range []string{
		"predict --gpu h100 --gpus 4 --mfu 0.3 --context 1K",
		"predict --gpu h100 --gpu-fp8 --prefill auto --context 1K",
		"predict --fit " + fit + " --link 100gbe --mtu 9000 --alpha 1e-5 --sweep bandwidth --context 1K",
		"predict --link nvlink4,100gbe --mtu 9000 --context 1K",
		"predict --link 100gbe --mtu 9000 --framing shaped --context 1K",
		"predict --link 100gbe --sweep bandwidth --context 1K",
		"predict --sweep context --link 100gbe --rate 1/s",
		"predict --layout paged --block-tokens 32 --fragmentation 0.5 --context 1K",
		"predict --context 1K --gpu= --rate= --gpu-fp8=false", // nothing is asked for
		"shape --list --format json",
	} {
		t.Run(line, func(t *testing.T) { kvbench(t, strings.Fields(line)...).want(t, exitDone) })
	}
}

// TestIdleFlagsOfTheEnvironment: what is set for many commands at once does not
// stop those that have no use for it, and is found beside what is written.
func TestIdleFlagsOfTheEnvironment(t *testing.T) {
	t.Setenv("KVBENCH_MFU", "0.3")
	t.Setenv("KVBENCH_GPUS", "4")
	kvbench(t, "predict", "--context", "1K").want(t, exitDone)
	t.Setenv("KVBENCH_GPU", "h100")
	if rows := kvbench(t, "predict", "--context", "1K", "--link", "100gbe", "--format", "json").rows(t); rows[0]["prefill_seconds"] == nil {
		t.Errorf("the environment's GPU counts for nothing: %v", rows)
	}
	kvbench(t, "predict", "--gpus", "2", "--context", "1K").want(t, exitDone)
	kvbench(t, "predict", "--gpus", "2", "--prefill", "1s").want(t, exitUsage, "--gpus")
	t.Setenv("KVBENCH_GPUS", "0")
	kvbench(t, "predict", "--context", "1K").want(t, exitUsage, "--gpus 0", "at least 1")
}

// TestLongArrivals: a run that will wait for hours for its requests to arrive says so
// before it does, and one that will not says nothing.
func TestLongArrivals(t *testing.T) {
	t.Parallel()
	p := start(t, with(append([]string{"loopback"}, tiny...), "--rate", "1/h")...)
	says := p.stderr.await(t, "to arrive")
	for _, part := range []string{"20 requests at 1/h", "20h0m0s", "--rate", "--requests", "--duration"} {
		if !strings.Contains(says, part) {
			t.Errorf("%q is not in %q", part, says)
		}
	}
	p.signal(syscall.SIGTERM)
	p.end(patience).want(t, exitFailed, "interrupted")
	// Of a loop of 20 requests a second those that are due within the second are waited for.
	got := start(t, with(append([]string{"loopback"}, tiny...), "--rate", "20/s", "--arrivals", "uniform", "--duration", "1s")...).end(patience)
	got.want(t, exitDone)
	if strings.Contains(got.stderr, "to arrive") {
		t.Errorf("a run of a second: %s", got.stderr)
	}
}

// TestNoLink: over a device without a rate, such as lo, what describes a link is said
// to have had no effect.
func TestNoLink(t *testing.T) {
	t.Parallel()
	_, addr := consumer(t, "--max-sessions", "3") // an earlier run may still be ending
	got := produce(t, addr, "--mtu", "9000", "--alpha", "1e-5")
	got.want(t, exitDone, "no effect of --mtu, --alpha:", "--link")
	for _, args := range [][]string{nil, {"--link", "100gbe", "--mtu", "9000"}} {
		if got := produce(t, addr, args...); strings.Contains(got.stderr, "no effect") {
			t.Errorf("%v: %s", args, got.stderr)
		}
	}
}

// TestEveryFlagCounts gives each flag of the commands that only compute, by itself,
// a value that is not its default: the output changes, or the flag is refused.
func TestEveryFlagCounts(t *testing.T) {
	fit := calibratedRun(t, steady)
	values := map[string]string{
		"model": "opt-66b", "context": "2K", "kv-dtype": "fp8", "layers": "0-9", "tp": "2", "tp-decode": "2", "pp": "2", "pp-decode": "2",
		"rank": "0:2", "layout": "paged", "block-tokens": "32", "block-order": "hnd", "cross-layer": "true", "fragmentation": "0.5",
		"mtu": "9000", "framing": "off", "alpha": "0.1", "gamma": "0.001", "prefill": "1s", "gpu": "h100", "gpus": "4", "mfu": "0.3", "gpu-fp8": "true",
		"link": "25gbe", "transport": "rdma", "fit": fit, "rate": "1/s", "overlap": "layer", "saved": "1ms", "sweep": "rate", "format": "csv", "list": "true",
	}
	// The order inside a block matters where a block's heads go to several ranks, and
	// the rank pair where pairs move unlike bytes: 80 layers in three stages.
	beside := map[string][]string{"block-order": {"--tp", "4", "--tp-decode", "2"}, "rank": {"--pp-decode", "3"}}
	for _, command := range []string{"shape", "predict"} {
		flagsOf(t, command).VisitAll(func(f *pflag.Flag) {
			if f.Name == "help" {
				return
			}
			value, ok := values[f.Name]
			if !ok {
				t.Errorf("%s has a flag --%s that this test gives no value", command, f.Name)
				return
			}
			plain := append([]string{command, "--format", "json"}, beside[f.Name]...)
			without, got := kvbench(t, plain...), kvbench(t, append(plain, "--"+f.Name+"="+value)...)
			without.want(t, exitDone)
			if got.status != exitUsage && (got.status != exitDone || got.stdout == without.stdout) {
				t.Errorf("%s --%s %s changes nothing and is not refused (exit status %d)", command, f.Name, value, got.status)
			}
		})
	}
}

// TestTablesNameFlags: no rule is about a flag or a command that there is not.
func TestTablesNameFlags(t *testing.T) {
	all := []string{"loopback", "producer", "consumer", "shape", "predict", "check", "version"}
	for _, rule := range idleFlags {
		for _, name := range rule.flags {
			commands := rule.commands
			if commands == nil {
				commands = all
			}
			if !slices.ContainsFunc(commands, func(c string) bool { return flagsOf(t, c).Lookup(name) != nil }) {
				t.Errorf("no command of %v has --%s", commands, name)
			}
		}
	}
	for _, b := range bounds {
		for _, name := range b.flags {
			if !slices.ContainsFunc(all, func(c string) bool { return flagsOf(t, c).Lookup(name) != nil }) {
				t.Errorf("no command has --%s", name)
			}
		}
	}
}

// flagsOf are a command's flags.
func flagsOf(t *testing.T, name string) *pflag.FlagSet {
	t.Helper()
	var ignored bytes.Buffer
	root := (&app{in: strings.NewReader(""), out: &ignored, err: &ignored}).root()
	i := slices.IndexFunc(root.Commands(), func(c *cobra.Command) bool { return c.Name() == name })
	if i < 0 {
		t.Fatalf("there is no command %s", name)
	}
	return root.Commands()[i].Flags()
}

// TestNumbers: what a number may be, and what a flag takes, in words of its own.
func TestNumbers(t *testing.T) {
	for _, c := range []struct {
		line string
		says []string
	}{
		{"predict --tp 0", []string{"--tp 0", "at least 1"}},
		{"predict --tp -1", []string{"--tp -1", "at least 1"}},
		{"predict --pp 0", []string{"--pp 0", "at least 1"}},
		{"shape --tp-decode 0", []string{"--tp-decode 0", "leave it out"}},
		{"shape --pp-decode -3", []string{"--pp-decode -3", "leave it out"}},
		{"predict --gpu h100 --gpus 0", []string{"--gpus 0", "at least 1"}},
		{"predict --gpu h100 --gpus -8", []string{"--gpus -8", "at least 1"}},
		{"predict --gpu h100 --mfu -0.4", []string{"--mfu -0.4", "at most 1"}},
		{"predict --gpu h100 --mfu 0", []string{"--mfu 0", "at most 1"}},
		{"predict --gpu h100 --mfu 40", []string{"--mfu 40", "at most 1"}},
		{"predict --gpu h100 --mfu NaN", []string{"--mfu NaN"}},
		{"predict --alpha -1e-6", []string{"--alpha -1e-06", "0 to 3600"}},
		{"predict --gamma NaN", []string{"--gamma NaN", "0 to 3600"}},
		{"predict --mtu -1", []string{"--mtu -1", "1500"}},
		{"predict --prefill -5ms", []string{"--prefill", "500ms"}},
		{"predict --prefill 5", []string{"--prefill", "500ms"}},
		{"predict --prefill 1s --saved -20%", []string{"--saved", "20%"}},
		{"predict --rate -1/s", []string{"--rate", "10/s"}},
		{"predict --link -1Gbit/s", []string{"--link", "25Gbit/s"}},
		{"shape --layout paged --fragmentation -0.5", []string{"--fragmentation -0.5", "0 to 1"}},
		{"shape --layout paged --block-tokens -16", []string{"at least one token"}},
		{"loopback --warmup -1", []string{"--warmup -1", "0 or more"}},
		{"loopback --streams -2", []string{"--streams -2", "at least 1"}},
		{"loopback --duration -1s", []string{"--duration", "30s"}},
		{"loopback --overlap layer --prefill -1ms", []string{"--prefill", "500ms"}},
		{"loopback --overlap layer --prefill 1ms,2ms --context 16", []string{"2 lengths for 1 context:"}},
		{"loopback --overlap layer --prefill auto --gpu a100 --gpus 1 --mfu 1e-9 --context 32K", []string{"--prefill auto", "32K", "at most"}},
		{"loopback --overlap layer --prefill auto --gpu abacus", []string{"abacus", "h100"}},
		{"loopback --overlap layer --prefill auto --gpu a100 --gpu-fp8", []string{"a100 has no fp8"}},

		{"predict --tp several", []string{`--tp "several" is not a whole number`}},
		{"predict --tp 1.5", []string{`--tp "1.5" is not a whole number`}},
		{"predict --tp 99999999999999999999", []string{"--tp", "is not a whole number"}},
		{"predict --mfu much", []string{`--mfu "much" is not a number`}},
		{"predict --cross-layer=maybe", []string{`--cross-layer "maybe" is not true or false`}},
		{"loopback --seed -1", []string{`--seed "-1" is not a whole number from 0 on`}},
		{"loopback --duration 5", []string{`--duration "5" is not a time such as 30s`}},

		{"consumer --listen 127.0.0.1:99999", []string{`"99999" is not a port`, "65535"}},
		{"consumer --listen 127.0.0.1:-1", []string{`"-1" is not a port`}},
		{"consumer --listen 9400", []string{"is not HOST:PORT"}},
		{"producer --connect 127.0.0.1:99999", []string{`"99999" is not a port`, "65535"}},
		{"producer --connect 127.0.0.1:0", []string{`"0" is not a port`, "from 1"}},
		{"consumer --listen 127.0.0.1:0 --max-sessions -1", []string{"--max-sessions -1", "at least 1"}},
	} {
		t.Run(c.line, func(t *testing.T) {
			got := kvbench(t, strings.Fields(c.line)...)
			got.want(t, exitUsage, c.says...)
			for _, raw := range []string{"strconv", "invalid syntax", "invalid argument", "time: ", "(s)"} {
				if strings.Contains(got.stderr, raw) {
					t.Errorf("the message is the parser's own: %s", got.stderr)
				}
			}
		})
	}
}
