package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
	"github.com/spf13/pflag"

	"kvbench/internal/testenv"
)

// TestShapeContract has sizes that anyone can work out.
func TestShapeContract(t *testing.T) {
	for _, c := range []struct {
		model, context, dtype string
		bytes                 float64
	}{
		{"opt-66b", "512", "fp16", 1207959552},
		{"llama-2-70b", "4K", "fp16", 1342177280},
		{"llama-2-70b", "4K", "fp8", 671088640},
		{"llama-2-70b", "4K", "bf16", 1342177280},
		{"llama-3.1-8b", "128K", "bf16", 131072 * 131072},
		{"llama-2-70b", "1", "fp16", 327680},
	} {
		got := kvbench(t, "shape", "--model", c.model, "--context", c.context, "--kv-dtype", c.dtype, "--format", "json")
		got.want(t, exitDone)
		rows := got.rows(t)
		if len(rows) != 1 || rows[0]["bytes"] != c.bytes {
			t.Errorf("%s at %s in %s: %v, want %.0f bytes", c.model, c.context, c.dtype, rows, c.bytes)
		}
		wantKeys(t, "shape", rows[0], "model", "context_tokens", "kv_dtype", "bytes", "bytes_per_token", "state_bytes", "layers", "attention_layers", "descriptors", "wire_bytes")
	}
}

func wantKeys(t *testing.T, what string, row map[string]any, keys ...string) {
	t.Helper()
	for _, k := range keys {
		if _, ok := row[k]; !ok {
			t.Errorf("%s has no %s", what, k)
		}
	}
}

// TestPredictContract has the exact times of llama-2-70b at line rate, in
// milliseconds, and what framing adds.
func TestPredictContract(t *testing.T) {
	links := []string{"nvlink4", "ib-ndr", "ib-hdr", "100gbe", "25gbe", "pcie5x16", "pcie4x16"}
	exact := map[string][]float64{
		"1K":   {0.746, 6.711, 13.42, 26.84, 107.4, 5.325, 10.65},
		"4K":   {2.983, 26.84, 53.69, 107.4, 429.5, 21.30, 42.60},
		"8K":   {5.965, 53.69, 107.4, 214.7, 859.0, 42.60, 85.20},
		"32K":  {23.86, 214.7, 429.5, 859.0, 3436, 170.4, 340.8},
		"128K": {95.44, 859.0, 1718, 3436, 13744, 681.6, 1363},
	}
	framing := map[string]float64{ // payload over line bytes
		"nvlink4": 1, "ib-ndr": 4096.0 / 4122, "ib-hdr": 4096.0 / 4122, "100gbe": 1448.0 / 1538, "25gbe": 1448.0 / 1538, "pcie5x16": 256.0 / 280, "pcie4x16": 256.0 / 280,
	}
	for context, want := range exact {
		args := []string{"predict", "--model", "llama-2-70b", "--context", context, "--link", strings.Join(links, ","), "--format", "json"}
		bare, framed := kvbench(t, append(args, "--framing", "off")...).rows(t), kvbench(t, args...).rows(t)
		if len(bare) != len(links) || len(framed) != len(links) {
			t.Fatalf("%s: %d and %d rows, want %d", context, len(bare), len(framed), len(links))
		}
		for i, link := range links {
			ms := bare[i]["transfer_seconds"].(float64) * 1e3
			if bare[i]["link"] != link || math.Abs(ms/want[i]-1) > 1e-3 {
				t.Errorf("%s on %s: %.5g ms, exact %g", context, link, ms, want[i])
			}
			if ratio := bare[i]["transfer_seconds"].(float64) / framed[i]["transfer_seconds"].(float64); math.Abs(ratio/framing[link]-1) > 1e-6 {
				t.Errorf("%s on %s: framing leaves %.5f to payload, want %.5f", context, link, ratio, framing[link])
			}
			wantKeys(t, "predict", framed[i], "context_tokens", "link", "bytes", "transfer_seconds", "overhead_fraction")
			if _, ok := framed[i]["utilization"]; ok {
				t.Error("utilization is there without --rate")
			}
		}
	}
	loaded := kvbench(t, "predict", "--link", "100gbe", "--rate", "1/s", "--format", "json").rows(t)
	wantKeys(t, "predict --rate", loaded[0], "utilization", "wait_fcfs_seconds", "wait_ps_seconds")
}

// TestPredictFramingByMTU: larger frames leave more to payload.
func TestPredictFramingByMTU(t *testing.T) {
	for _, c := range []struct {
		args []string
		want float64
	}{
		{[]string{"--link", "100gbe", "--mtu", "9000"}, 8948.0 / 9038},
		{[]string{"--link", "100gbe", "--mtu", "1500", "--framing", "shaped"}, 1448.0 / 1514},
		{[]string{"--link", "1Gbit/s", "--mtu", "1500"}, 1448.0 / 1538},
		{[]string{"--link", "100gbe", "--framing", "0.5"}, 0.5},
		{[]string{"--link", "ib-ndr", "--mtu", "2048"}, 2048.0 / 2074},
	} {
		rows := kvbench(t, append([]string{"predict", "--context", "1K", "--format", "json"}, c.args...)...).rows(t)
		if got := 1 - rows[0]["overhead_fraction"].(float64); math.Abs(got/c.want-1) > 1e-9 {
			t.Errorf("%v: %.6f left to payload, want %.6f", c.args, got, c.want)
		}
	}
}

// TestUsage has command lines that are wrong or ask for what cannot be, and what
// each must be told.
func TestUsage(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "run.json")
	for _, c := range []struct {
		line   string
		status int
		says   []string
	}{
		{"lopback", exitUsage, []string{`unknown command "lopback"`, "loopback"}},
		{"nonsense", exitUsage, []string{`unknown command "nonsense"`, "--help"}},
		{"--nope", exitUsage, []string{"--nope"}},
		{"loopback --nope", exitUsage, []string{"--nope", "--help"}},
		{"loopback extra", exitUsage, []string{`kvbench loopback takes flags alone, and "extra" is none`, "such as: kvbench loopback"}},
		{"shape extra", exitUsage, []string{`"extra" is none`, "such as: kvbench shape --model"}},
		{"version 2", exitUsage, []string{`"2" is none`, "such as: kvbench version"}},
		{"check", exitUsage, []string{"kvbench check needs RUN.json", "such as: kvbench check run.json --tolerance"}},
		{"check a.json b.json", exitUsage, []string{`takes RUN.json alone, and "b.json" is too much`, "such as: kvbench check run.json"}},
		{"completion tcsh", exitUsage, []string{`no completion for "tcsh"`, "bash, fish, powershell, zsh", "kvbench completion bash"}},
		{"completion bash extra", exitUsage, []string{`kvbench completion bash takes flags alone, and "extra" is none`}},
		{"help lopback", exitUsage, []string{`unknown command "lopback"`, "did you mean loopback?"}},
		{"help shape now", exitUsage, []string{`unknown command "shape now"`}},
		{"producer", exitUsage, []string{"--connect is needed", "decode-7:9400"}},
		{"producer --connect nowhere", exitUsage, []string{"is not HOST:PORT"}},

		{"loopback --context 0", exitUsage, []string{"--context 0", "at least one token"}},
		{"loopback --context -5", exitUsage, []string{"-5", "negative"}},
		{"loopback --context abc", exitUsage, []string{`"abc"`, "4K"}},
		{"loopback --context 1.5", exitUsage, []string{`"1.5"`, "whole number"}},
		{"loopback --context=", exitUsage, []string{"--context"}},
		{"loopback --context 1K,,2K", exitUsage, []string{"--context"}},
		{"loopback --context 99999999T", exitUsage, []string{"99999999T"}},
		{"loopback --context 1000000000", exitFailed, []string{"298 TiB", "each", "--context", "--pool"}},
		{"loopback --context 9000000000000", exitUsage, []string{"9000000000000 tokens", "lower the context"}},
		{"producer --connect 127.0.0.1:9 --context 1000000000", exitFailed, []string{"the producer", "298 TiB", "--context"}},
		{"loopback --context 1K --concurrency 1000", exitFailed, []string{"GiB", "1000", "--concurrency"}},
		{"loopback --model lama-2-70b", exitUsage, []string{"llama-2-70b"}},
		{"shape --model nothing-like-it", exitUsage, []string{"nothing-like-it"}},
		{"loopback --out /nonexistent/x.json", exitFailed, []string{"/nonexistent", "--out"}},
		{"loopback --out " + dir, exitFailed, []string{"is a directory", "file name"}},

		{"loopback --kv-dtype fp99", exitUsage, []string{"--kv-dtype", "fp99"}},
		{"loopback --direction sideways", exitUsage, []string{"choose push or pull"}},
		{"loopback --verify some", exitUsage, []string{"choose none, stamp or full"}},
		{"loopback --requests 0", exitUsage, []string{"--requests"}},
		{"loopback --requests -1", exitUsage, []string{"--requests"}},
		{"loopback --requests many", exitUsage, []string{"--requests"}},
		{"loopback --warmup -1", exitUsage, []string{"--warmup"}},
		{"loopback --duration -5s", exitUsage, []string{"--duration"}},
		{"loopback --duration 5", exitUsage, []string{"--duration"}},
		{"loopback --concurrency 0", exitUsage, []string{"--concurrency"}},
		{"loopback --concurrency 1000000", exitUsage, []string{"1024"}},
		{"loopback --streams 0", exitUsage, []string{"--streams"}},
		{"loopback --pool 0", exitUsage, []string{"--pool"}},
		{"loopback --pool -1", exitUsage, []string{"--pool"}},
		{"loopback --pool 1KiB --context 1K", exitUsage, []string{"raise the pool"}},
		{"loopback --socket-buffer 2GiB", exitUsage, []string{"--socket-buffer"}},
		{"loopback --layers 79-70", exitUsage, []string{"--layers"}},
		{"loopback --layers 0-100", exitUsage, []string{"layers", "79"}},
		{"loopback --tp 3", exitUsage, []string{"tp 3", "divisor"}},
		{"loopback --rank 1", exitUsage, []string{"--rank", "0:0"}},
		{"loopback --rank 5:0", exitUsage, []string{"0 to 0"}},
		{"loopback --layout spiral", exitUsage, []string{"contiguous or paged"}},
		{"loopback --layout paged --fragmentation 2", exitUsage, []string{"0 to 1"}},
		{"loopback --block-tokens 0", exitUsage, []string{"at least one token"}},
		{"loopback --link 100gb", exitUsage, []string{"did you mean 100gbe"}},
		{"loopback --link 0Gbit/s", exitUsage, []string{"above zero"}},
		{"loopback --link 100gbe --mtu 20", exitUsage, []string{"MTU"}},
		{"loopback --framing 2", exitUsage, []string{"--framing"}},
		{"loopback --alpha -1", exitUsage, []string{"--alpha"}},
		{"loopback --tolerance 0%", exitUsage, []string{"--tolerance"}},
		{"loopback --tolerance Inf", exitUsage, []string{"--tolerance"}},
		{"loopback --against paper", exitUsage, []string{"spec, fit"}},
		{"loopback --calibrate maybe", exitUsage, []string{"auto or off"}},
		{"loopback --format yaml", exitUsage, []string{"text, json or csv"}},
		{"shape --format yaml", exitUsage, []string{"text, json or csv"}},
		{"predict --format yaml", exitUsage, []string{"text, json or csv"}},
		{"check --format yaml testdata/spec.run.json", exitUsage, []string{"text, json or csv"}},
		{"predict --link nvlink9", exitUsage, []string{"did you mean nvlink"}},
		{"predict --link ib-ndr --mtu 1500", exitUsage, []string{"power of two"}},
		{"predict --rate 0/s", exitUsage, []string{"--rate"}},
		{"predict --rate fast", exitUsage, []string{"--rate"}},

		{"consumer --listen nowhere", exitUsage, []string{"is not HOST:PORT"}},
		{"consumer --listen 127.0.0.1:99999", exitUsage, []string{"--listen"}},
		{"consumer --listen 127.0.0.1:0 --max-sessions 0", exitUsage, []string{"--max-sessions"}},
		{"consumer --listen 127.0.0.1:0 --max-memory lots", exitUsage, []string{"--max-memory", "64GiB"}},
		{"consumer --listen 127.0.0.1:0 --max-memory 0", exitUsage, []string{"--max-memory"}},
		{"consumer --listen 127.0.0.1:0 --tls-cert x.pem", exitUsage, []string{"go together"}},
		{"consumer --listen 127.0.0.1:0 --tls-ca x.pem", exitFailed, []string{"--tls-ca", "x.pem"}},
	} {
		t.Run(c.line, func(t *testing.T) {
			args := strings.Fields(c.line)
			if (args[0] == "loopback" || args[0] == "producer") && !slices.Contains(args, "--out") {
				args = append(args, "--out", out)
			}
			got := kvbench(t, args...)
			got.want(t, c.status, c.says...)
			if got.stdout != "" {
				t.Errorf("a failure prints on stdout: %s", got.stdout)
			}
			if c.status == exitUsage && !strings.Contains(got.stderr, "--help") {
				t.Errorf("wrong usage does not point to --help: %s", got.stderr)
			}
		})
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestUnwritableResultIsFoundFirst: nothing is started for a result that cannot be kept.
func TestUnwritableResultIsFoundFirst(t *testing.T) {
	p := start(t, with(append([]string{"loopback"}, endless...), "--out", "/proc/run.json")...)
	p.end(patience).want(t, exitFailed, "--out")
	noneLeft(t)
}

// TestEnvironment: every flag can be given there, the command line wins, and what
// is wrong there is said to be there.
func TestEnvironment(t *testing.T) {
	t.Setenv("KVBENCH_CONTEXT", "512,1K")
	t.Setenv("KVBENCH_FORMAT", "json")
	t.Setenv("KVBENCH_KV_DTYPE", "fp8")
	if rows := kvbench(t, "shape").rows(t); len(rows) != 2 || rows[1]["bytes"] != 327680.0*1024/2 {
		t.Errorf("rows %v", rows)
	}
	if rows := kvbench(t, "shape", "--kv-dtype", "fp16", "--context", "1").rows(t); len(rows) != 1 || rows[0]["bytes"] != 327680.0 {
		t.Errorf("rows %v, the command line did not win", rows)
	}
	t.Setenv("KVBENCH_TP", "several")
	kvbench(t, "shape").want(t, exitUsage, "KVBENCH_TP", "several")
	t.Setenv("KVBENCH_TP", "1")
	t.Setenv("KVBENCH_CONTEXT", "0")
	kvbench(t, "shape").want(t, exitUsage, "at least one token", "(from the environment: KVBENCH_CONTEXT)")
	kvbench(t, "shape", "--context", "1K").want(t, exitDone)
}

// TestEnvironmentIsNamed: whatever is wrong with what the environment sets, the
// message names the variable, and no other.
func TestEnvironmentIsNamed(t *testing.T) {
	t.Setenv("KVBENCH_TOKEN", "a secret") // no flag of these commands
	t.Setenv("KVBENCH_TP", "1")
	for _, c := range []struct{ name, value, command, says string }{
		{"KVBENCH_MODEL", "lama-2-70b", "shape", "(from the environment: KVBENCH_MODEL"},
		{"KVBENCH_FORMAT", "yaml", "shape", "(from the environment: KVBENCH_FORMAT)"},
		{"KVBENCH_LINK", "nvlink9", "predict", "(from the environment: KVBENCH_LINK)"},
		{"KVBENCH_TP_DECODE", "0", "shape", "(from the environment: KVBENCH_TP_DECODE)"},
		{"KVBENCH_TP_DECODE", "3", "shape", "KVBENCH_TP_DECODE"},
		{"KVBENCH_DURATION", "5", "loopback", "KVBENCH_DURATION in the environment: "},
		{"KVBENCH_LINKS", "100gbe", "predict", "KVBENCH_LINKS in the environment is no flag of any command"},
		{"KVBENCH_", "1", "version", "KVBENCH_ in the environment is no flag"},
	} {
		t.Run(c.name+"="+c.value, func(t *testing.T) {
			t.Setenv(c.name, c.value)
			got := kvbench(t, c.command)
			got.want(t, exitUsage, c.says)
			if strings.Contains(got.stderr, "KVBENCH_TOKEN") {
				t.Errorf("a variable that is none of the command's is blamed: %s", got.stderr)
			}
		})
	}
	// What is written is not the environment's fault.
	if got := kvbench(t, "predict", "--link", "nvlink9"); strings.Contains(got.stderr, "KVBENCH") {
		t.Errorf("the environment is blamed for what was written: %s", got.stderr)
	}
	// Help and completion are there to find out what the flags are called.
	t.Setenv("KVBENCH_LINKS", "100gbe")
	for _, line := range []string{"help predict", "predict --help", "completion bash", "__complete predict --li"} {
		kvbench(t, strings.Fields(line)...).want(t, exitDone)
	}
}

// TestEnvironmentOfOtherCommands: every flag may be set for all commands, and stops none
// that lacks it. What the tests, the scripts and Kubernetes set is no flag.
func TestEnvironmentOfOtherCommands(t *testing.T) {
	for _, c := range (&app{transports: transports()}).root().Commands() {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !slices.Contains([]string{"help", "format", "model", "context", "link", "requests"}, f.Name) && f.Value.Type() != "stringSlice" {
				t.Setenv(variable(f.Name), f.DefValue)
			}
		})
	}
	for name, value := range map[string]string{
		"KVBENCH_LANE": "shm", "KVBENCH_RDMA_OP": "get", "KVBENCH_CONNECT": "decode-7:9400", "KVBENCH_ONCE": "true",
		"KVBENCH_TP_DECODE": "1", "KVBENCH_PP_DECODE": "1", "KVBENCH_MFU": "0.4",
		"KVBENCH_CACHE": "/tmp", "KVBENCH_PORT": "tcp://10.0.0.1:9400", "KVBENCH_PORT_9400_TCP": "tcp://10.0.0.1:9400", "KVBENCH_SERVICE_HOST": "10.0.0.1", "KVBENCH_SERVICE_PORT_CONTROL": "9400", "KVBENCH_CONSUMER_PORT": "tcp://10.0.0.1:9400", "KVBENCH_CONSUMER_SERVICE_HOST": "10.0.0.1",
	} {
		t.Setenv(name, value)
	}
	for _, line := range []string{"version", "shape", "predict", "check testdata/spec.run.json", "devices", "loopback --calibrate off --model qwen3-0.6b --context 16 --requests 1"} {
		start(t, strings.Fields(line)...).end(patience).want(t, exitDone)
	}
}

func TestVersion(t *testing.T) {
	got := kvbench(t, "version")
	got.want(t, exitDone)
	if !strings.HasPrefix(got.stdout, "kvbench ") || !strings.Contains(got.stdout, "transport tcp: usable") {
		t.Errorf("version prints %q", got.stdout)
	}
}

// TestNoCommand shows what there is.
func TestNoCommand(t *testing.T) {
	got := kvbench(t, []string{}...) // none, rather than those of the test
	got.want(t, exitDone)
	for _, command := range []string{"loopback", "consumer", "producer", "shape", "predict", "check", "version"} {
		if !strings.Contains(got.stdout, "  "+command+" ") {
			t.Errorf("the help does not name %s:\n%s", command, got.stdout)
		}
	}
}

// TestLoopback is the main job, with every byte of a large model checked, and
// the record that others may rely on. The long run moves 335.5 MB at a time.
func TestLoopback(t *testing.T) {
	t.Parallel()
	tokens, size := 32, "10.49 MB"
	if testenv.Full {
		tokens, size = 1024, "335.5 MB"
	}
	bytes := 327680 * float64(tokens)
	out := filepath.Join(t.TempDir(), "run.json")
	got := start(t, "loopback", "--model", "llama-2-70b", "--context", fmt.Sprint(tokens), "--requests", "2", "--warmup", "1", "--verify", "full", "--calibrate", "off", "--out", out).end(2 * patience)
	got.want(t, exitDone)
	if !strings.Contains(got.stdout, size) || !strings.Contains(got.stdout, "GB/s") {
		t.Errorf("the table:\n%s", got.stdout)
	}
	noneLeft(t)

	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var run map[string]any
	if err := json.Unmarshal(b, &run); err != nil {
		t.Fatal(err)
	}
	wantKeys(t, "run", run, "schema", "config", "producer", "consumer", "transport", "fit", "cells")
	if run["schema"] != "kvbench.run/1" {
		t.Errorf("schema %v", run["schema"])
	}
	path := func(v any, keys ...string) any {
		for _, k := range keys {
			m, ok := v.(map[string]any)
			if !ok {
				return fmt.Sprintf("nothing holds %q", k)
			}
			v = m[k]
		}
		return v
	}
	wantKeys(t, "transport", run["transport"].(map[string]any), "name", "lane", "device", "emulated")
	for _, side := range []string{"producer", "consumer"} {
		if cpu, ok := path(run, side, "cpu_seconds").(float64); !ok || cpu <= 0 {
			t.Errorf("cpu_seconds of the %s: %v", side, path(run, side, "cpu_seconds"))
		}
	}
	config := run["config"].(map[string]any)
	if config["model"] != "llama-2-70b" || config["verify"] != "full" || config["streams"] != "1" {
		t.Errorf("config %v", config)
	}
	for _, secret := range []string{"token"} {
		if _, ok := config[secret]; ok {
			t.Errorf("the record holds the %s", secret)
		}
	}
	cell := run["cells"].([]any)[0].(map[string]any)
	wantKeys(t, "cell", cell, "context_tokens", "bytes", "descriptors", "requests", "goodput_bytes_per_second", "latency", "predicted", "verdict", "verify")
	for _, c := range []struct {
		keys []string
		want any
	}{
		{[]string{"context_tokens"}, float64(tokens)},
		{[]string{"bytes"}, bytes},
		{[]string{"requests"}, 2.0},
		{[]string{"verify", "mode"}, "full"},
		{[]string{"verify", "mismatched"}, 0.0},
		{[]string{"latency", "layer", "count"}, 160.0},
		{[]string{"latency", "post", "count"}, 160.0},
		{[]string{"latency", "ack_rtt", "count"}, 160.0},
		{[]string{"latency", "response", "count"}, 2.0},
		{[]string{"latency", "service", "count"}, 2.0},
		{[]string{"latency", "exposed", "count"}, 2.0},
		{[]string{"latency", "first_layer", "count"}, 2.0},
		{[]string{"latency", "service", "p99_ns"}, nil}, // two samples are too few
		{[]string{"verdict", "status"}, "unchecked"},
	} {
		if got := path(cell, c.keys...); got != c.want {
			t.Errorf("%s is %v, want %v", strings.Join(c.keys, "."), got, c.want)
		}
	}
	if checked := path(cell, "verify", "checked").(float64); checked <= 0 {
		t.Errorf("verify.checked is %v", checked)
	}
	for _, name := range []string{"response", "service", "layer", "first_layer", "exposed", "post", "ack_rtt"} {
		l := path(cell, "latency", name).(map[string]any)
		wantKeys(t, name, l, "count", "mean_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns", "hdr")
		h, err := hdr.Decode([]byte(l["hdr"].(string)))
		if err != nil || float64(h.TotalCount()) != l["count"] || min(float64(h.ValueAtQuantile(50)), l["max_ns"].(float64)) != l["p50_ns"] {
			t.Errorf("histogram of %s does not agree with its count and p50: %v", name, err)
		}
	}
	goodput, seconds := cell["goodput_bytes_per_second"].(float64), path(cell, "latency", "service", "mean_ns").(float64)/1e9
	if !within(goodput, bytes/seconds, 0.05) {
		t.Errorf("goodput %.4g, bytes over mean service time %.4g", goodput, bytes/seconds)
	}
}

// TestLoopbackOptions runs the small workload in the ways that the flags offer.
func TestLoopbackOptions(t *testing.T) {
	for _, c := range []struct {
		name, flags string
		requests    int64 // 0: as long as the flags say
	}{
		{"pull", "--direction pull --verify full", 3},
		{"streams", "--streams 3 --busy-poll --socket-buffer 1MiB", 3},
		{"concurrency", "--concurrency 3", 7},
		{"pool", "--pool 128KiB --verify full", 3},
		{"paged", "--layout paged --fragmentation 0.5 --block-tokens 4 --verify full", 3},
		{"duration", "--duration 100ms", 0},
		{"ranks", "--tp 4 --tp-decode 2 --rank 3:1 --verify full", 3},
		{"two contexts", "--context 32", 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(t.TempDir(), "run.json")
			args := with(append([]string{"loopback"}, tiny...), append(strings.Fields(c.flags), "--out", out)...)
			if c.requests > 0 {
				args = append(args, "--requests", fmt.Sprint(c.requests))
			}
			got := start(t, args...).end(patience)
			got.want(t, exitDone)
			r := readRun(t, out)
			for _, cell := range r.Cells {
				if !r.Complete || !cell.Complete || cell.Verify.Mismatched != 0 || cell.Verify.Checked == 0 || c.requests > 0 && cell.Requests != c.requests || cell.Requests == 0 {
					t.Errorf("%d requests, complete %v, verify %+v", cell.Requests, cell.Complete, cell.Verify)
				}
			}
		})
	}
}
