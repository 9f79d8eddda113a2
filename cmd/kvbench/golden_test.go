package main

import (
	"bytes"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kvbench/bench"
	"kvbench/model"
	"kvbench/payload"
	"kvbench/results"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// golden compares got with testdata/name.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; make it with: go test ./cmd/kvbench -run Golden -update", err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (if that is meant: go test ./cmd/kvbench -run Golden -update)\n--- want\n%s\n--- got\n%s", path, want, got)
	}
}

// specRun is a run whose numbers are known by hand. Ten requests of llama-2-70b at
// 1024 tokens, 335,544,320 bytes, took 29, 29.1, ... 29.9 ms. 100 Gbit/s less TCP's
// headers at MTU 1500 gives 12.5e9·1448/1538 = 11.7685e9 B/s, so 28.512 ms each.
// The histogram's median is the fifth, 29.4 ms, to its three digits: a ratio of
// 1.031. With ten samples the second and the ninth bound the median, 29.1 and
// 29.8 ms: from 1.021 to 1.045. So it passes at 15 %, and at 3 % it is outside
// with an interval that reaches in, which is unchecked. At 1 % it fails.
func specRun(t testing.TB) *results.Run {
	t.Helper()
	link, err := model.ParseLink("100gbe")
	if err != nil {
		t.Fatal(err)
	}
	service, layer := results.NewHistogram(), results.NewHistogram()
	for i := range 10 {
		d := 29*time.Millisecond + time.Duration(i)*100*time.Microsecond
		service.Record(d)
		for range 80 {
			layer.Record(d / 80)
		}
	}
	latency := func(h *results.Histogram) results.Latency {
		l, err := h.Latency()
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	seconds := model.SpecCost(link, 1500, model.Framing{}, 0, 0).Seconds(80, 160, 335544320)
	run := &results.Run{
		Schema: results.Schema, Version: "devel", ID: "0123456789abcdef", Started: "2026-01-02T03:04:05Z", Complete: true,
		Config: map[string]string{"command": "producer"},
		Link:   &results.Link{Name: link.Name, BytesPerSecond: link.BytesPerSecond, MTU: 1500, FramingFactor: 1448.0 / 1538, FramingBasis: "TCP with timestamps at MTU 1500", Source: "flag"},
		Cells: []results.Cell{{
			ContextTokens: 1024, Bytes: 335544320, KVBytes: 335544320, WorkingSetBytes: 335544320, Layers: 80, Descriptors: 160,
			Requests: 10, Concurrency: 1, Complete: true, Goodput: 335544320 / 0.02945, BusySeconds: 0.2945,
			Latency:   results.Latencies{Response: latency(service), Service: latency(service), Layer: latency(layer), FirstLayer: latency(layer), Exposed: latency(service), Post: latency(layer), AckRTT: latency(layer), Late: latency(results.NewHistogram())},
			Predicted: results.Predictions{Spec: &results.Prediction{Seconds: seconds, SecondsLow: seconds, SecondsHigh: seconds}},
			Verify:    results.Verification{Mode: "stamp", Verdict: payload.Verdict{Checked: 1600}},
			CPU:       results.CellCPU{ConsumerSeconds: new(0.0)},
		}},
	}
	run.Producer.CPUSeconds, run.Consumer.CPUSeconds = new(0.0), new(0.0)
	run.Producer.Host.Hostname, run.Consumer.Host.Hostname = "prefill", "decode"
	run.Transport.Name, run.Transport.Lane = "tcp", "tcp/eth0"
	if err := bench.Recheck(run, bench.Judge{Tolerance: 0.15, Against: []string{"spec"}}); err != nil {
		t.Fatal(err)
	}
	return run
}

// TestGoldenRun keeps the stored record as specRun describes it, and holds what
// check makes of it against the numbers that were worked out by hand.
func TestGoldenRun(t *testing.T) {
	run := specRun(t)
	b, err := results.Encode(run)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "spec.run.json", b)
	p := run.Cells[0].Predicted.Spec
	for _, c := range []struct {
		what      string
		got, want float64
	}{
		{"predicted ms", p.Seconds * 1e3, 28.512}, {"ratio", p.Ratio, 1.0311}, {"ratio, low", p.Low, 1.0206}, {"ratio, high", *p.High, 1.0452},
	} {
		if math.Abs(c.got/c.want-1) > 0.001 {
			t.Errorf("%s %.5g, by hand %.5g", c.what, c.got, c.want)
		}
	}
}

// TestGolden holds what commands print against files that were looked at.
func TestGolden(t *testing.T) {
	commands := map[string][]string{
		"shape":      {"shape", "--model", "llama-2-70b", "--context", "512,1K,4K"},
		"shape-fp8":  {"shape", "--model", "llama-3.1-8b", "--context", "100", "--kv-dtype", "fp8", "--tp", "4", "--layout", "paged"},
		"predict":    {"predict", "--model", "llama-2-70b", "--context", "1K,4K", "--link", "nvlink4,ib-ndr,100gbe"},
		"queue":      {"predict", "--model", "opt-66b", "--context", "512", "--link", "100gbe,200gbe", "--rate", "10/s"},
		"check-pass": {"check", "testdata/spec.run.json", "--tolerance", "15%"},
		"check-open": {"check", "testdata/spec.run.json", "--tolerance", "3%"},
		"check-fail": {"check", "testdata/spec.run.json", "--tolerance", "1%"},
	}
	status := map[string]int{"check-fail": exitOutside}
	for name, args := range commands {
		for _, format := range []string{"text", "json", "csv"} {
			got := kvbench(t, with(args, "--format", format)...)
			got.want(t, status[name])
			golden(t, name+"."+format+".golden", []byte(got.stdout))
		}
	}
}

func TestGoldenHelp(t *testing.T) {
	for _, command := range []string{"", "loopback", "consumer", "producer", "shape", "predict", "check", "devices", "version"} {
		got := kvbench(t, append(strings.Fields(command), "--help")...)
		got.want(t, exitDone)
		golden(t, strings.TrimPrefix(command+"-help.golden", "-"), []byte(got.stdout))
		if command != "" && got.stdout != kvbench(t, "help", command).stdout {
			t.Errorf("help %s differs from %s --help", command, command)
		}
	}
}

// TestCheck judges the stored record by several tolerances.
func TestCheck(t *testing.T) {
	for _, c := range []struct {
		args   []string
		status int
		says   []string
	}{
		{[]string{"--tolerance", "15%"}, exitDone, nil},
		{[]string{"--tolerance", "0.05"}, exitDone, nil},
		{[]string{"--tolerance", "3%"}, exitDone, nil}, // its interval reaches in: unchecked
		{[]string{"--tolerance", "1%"}, exitOutside, []string{"outside tolerance of 1 %"}},
		{[]string{"--tolerance", "1%", "--against", "spec"}, exitOutside, nil},
		{[]string{"--against", "fit"}, exitFailed, []string{"nothing to check against", "--link", "--calibrate"}},
		{[]string{"--against", "paper"}, exitUsage, []string{"choose spec, fit or spec,fit"}},
		{[]string{"--tolerance", "0"}, exitUsage, []string{"share above 0"}},
		{[]string{"--tolerance", "-5%"}, exitUsage, []string{"share above 0"}},
		{[]string{"--tolerance", "much"}, exitUsage, []string{"share above 0"}},
		{[]string{"--tolerance", "NaN"}, exitUsage, []string{"share above 0"}},
	} {
		got := kvbench(t, append([]string{"check", "testdata/spec.run.json"}, c.args...)...)
		if got.status != c.status {
			t.Errorf("check %v:", c.args)
		}
		got.want(t, c.status, c.says...)
	}
}

// TestCheckRefuses files that hold no whole run.
func TestCheckRefuses(t *testing.T) {
	dir := t.TempDir()
	whole, err := results.Encode(specRun(t))
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	changed := func(name, old, new string) string {
		if !bytes.Contains(whole, []byte(old)) {
			t.Fatalf("%q is not in the record", old)
		}
		return file(name, bytes.Replace(whole, []byte(old), []byte(new), 1))
	}
	for _, c := range []struct {
		path string
		says []string
	}{
		{filepath.Join(dir, "none.json"), []string{"none.json", "no such file"}},
		{dir, []string{"is a directory"}},
		{file("empty.json", nil), []string{"empty.json", "not a kvbench run record"}},
		{file("garbage.json", []byte{0, 1, 2, 0xff}), []string{"not a kvbench run record"}},
		{file("half.json", whole[:len(whole)/2]), []string{"not a kvbench run record"}},
		{file("other.json", []byte(`{"name": "a package", "version": "1"}`)), []string{"not a kvbench run record", "kvbench.run/1"}},
		{changed("schema.json", "kvbench.run/1", "kvbench.run/9"), []string{"kvbench.run/9", "kvbench.run/1"}},
		{changed("incomplete.json", `"complete": true`, `"complete": false, "incomplete": "interrupted"`), []string{"ended early", "interrupted", "run it again"}},
		{changed("histogram.json", `"hdr": "HIST`, `"hdr": "XXXX`), []string{}},
	} {
		got := kvbench(t, "check", c.path)
		if got.status != exitFailed && filepath.Base(c.path) != "histogram.json" {
			t.Errorf("check %s:", filepath.Base(c.path))
			got.want(t, exitFailed, c.says...)
		}
	}
	// The response histogram is not what a verdict rests on; the service one is.
	i := bytes.Index(whole, []byte(`"service"`))
	bad := append(bytes.Clone(whole[:i]), bytes.Replace(whole[i:], []byte(`"hdr": "HIST`), []byte(`"hdr": "XXXX`), 1)...)
	kvbench(t, "check", file("service.json", bad)).want(t, exitFailed, "1024 tokens", "service times")
	for name, change := range map[string][2]string{
		"bytes":    {`"bytes": 335544320`, `"bytes": 3355443200`},
		"requests": {`"requests": 10`, `"requests": 500`},
		"layers":   {`"layers": 80`, `"layers": 8`},
		"link":     {`"link": {`, `"old_link": {`},
		"wrong":    {`"mismatched": 0`, `"mismatched": -2`},
		"checked":  {`"checked": `, `"checked": 0, "old": `},
	} {
		kvbench(t, "check", changed(name+".json", change[0], change[1])).want(t, exitFailed, "contradicts itself", "run it again")
	}
	for name, change := range map[string][2]string{
		"transport": {`"transport": {`, `"transport": null, "old": {`},
		"rate":      {`"bytes_per_second": `, `"bytes_per_second": 0, "old": `},
		"gamma":     {`"gamma_seconds_per_descriptor": `, `"gamma_seconds_per_descriptor": -1, "old": `},
	} {
		kvbench(t, "check", changed(name+".json", change[0], change[1])).want(t, exitFailed, "names no transport, or a link without a rate", "run it again")
	}
	corrupt := changed("corrupt.json", `"mismatched": 0`, `"mismatched": 3`)
	kvbench(t, "check", corrupt).want(t, exitCorrupt, "data arrived wrong")
}
