package main

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kvbench/results"
)

// A calibrated path: 50 µs of startup, 1 µs a descriptor, 1 GB/s.
const (
	pathStartup    = 50e-6
	pathDescriptor = 1e-6
	pathBandwidth  = 1e9
)

// steady is a repetition that strays by 0.2 % at most.
func steady(_ *rand.Rand, _ int64, repetition int) float64 {
	return 1 + 0.002*float64(repetition-5)/5
}

// shakySmall strays in batches up to 64 KiB, by up to a factor of four either way:
// the host's scheduler rather than the path.
func shakySmall(rng *rand.Rand, bytes int64, repetition int) float64 {
	if bytes <= 64<<10 {
		return math.Pow(4, 2*rng.Float64()-1)
	}
	return steady(rng, bytes, repetition)
}

// calibratedRun writes the record of a run that calibrated the path, to 64 MiB, and
// returns its name.
func calibratedRun(t testing.TB, stray func(rng *rand.Rand, bytes int64, repetition int) float64) string {
	t.Helper()
	run := specRun(t)
	run.Fit = &results.Fit{}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, bytes := range []int64{16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20} {
		for _, n := range [][2]int{{1, 1}, {1, 32}, {1, 1024}, {8, 8}, {8, 32}, {64, 64}, {64, 1024}} {
			for i := range 11 {
				seconds := pathStartup + pathDescriptor*float64(n[1]) + float64(bytes)/pathBandwidth
				run.Fit.Samples = append(run.Fit.Samples, results.Sample{Transfers: n[0], Descriptors: n[1], Bytes: bytes, Seconds: seconds * stray(rng, bytes, i)})
			}
		}
	}
	b, err := results.Encode(run)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "fit.run.json")
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestPredictFit: an interval stands beside what is predicted from a calibration,
// and covers the path's true time.
func TestPredictFit(t *testing.T) {
	fit := calibratedRun(t, steady)
	args := []string{"predict", "--model", "llama-3.1-8b", "--context", "128,4K", "--fit", fit}
	rows := kvbench(t, append(args, "--link", "100gbe", "--format", "json")...).rows(t)
	if len(rows) != 4 {
		t.Fatalf("%d rows for two contexts over a link and a fit", len(rows))
	}
	for _, row := range rows {
		tokens, seconds := row["context_tokens"].(float64), row["transfer_seconds"].(float64)
		if row["link"] != "fit" {
			for _, key := range []string{"transfer_seconds_low", "transfer_seconds_high", "vague", "note"} {
				if v, ok := row[key]; ok {
					t.Errorf("a data sheet has %s: %v", key, v)
				}
			}
			continue
		}
		// 131,072 bytes a token; K and V of 32 layers are 64 descriptors.
		true50 := pathStartup + 64*pathDescriptor + tokens*131072/pathBandwidth
		low, high := row["transfer_seconds_low"].(float64), row["transfer_seconds_high"].(float64)
		if !within(seconds, true50, 0.01) || low > true50 || high < true50 || !within(low, high, 0.03) {
			t.Errorf("%g tokens: %.5g s (%.5g to %.5g), the path takes %.5g", tokens, seconds, low, high, true50)
		}
		note, _ := row["note"].(string)
		// 16.8 MB lies inside what was calibrated, to 67.1 MB; 536.9 MB lies beyond twice of it.
		if outside := strings.Contains(note, "extrapolated"); outside != (tokens == 4096) || row["vague"] != false {
			t.Errorf("%g tokens: vague %v, note %q", tokens, row["vague"], note)
		}
	}
	text := kvbench(t, args...).stdout
	for _, says := range []string{"95 % interval", "4K over fit: extrapolated", "67.11 MB"} {
		if !strings.Contains(text, says) {
			t.Errorf("the text does not say %q:\n%s", says, text)
		}
	}
	if strings.Contains(text, "128 over fit") {
		t.Errorf("a caveat where there is none:\n%s", text)
	}
}

// TestPredictVagueFit: where a calibration leaves a request open, the row says so.
func TestPredictVagueFit(t *testing.T) {
	fit := calibratedRun(t, shakySmall)
	args := []string{"predict", "--model", "qwen3-0.6b", "--layers", "0", "--context", "1,8K", "--fit", fit}
	rows := kvbench(t, append(args, "--format", "json")...).rows(t)
	for i, want := range []bool{true, false} {
		note, _ := rows[i]["note"].(string)
		if rows[i]["vague"] != want || strings.Contains(note, "too vague") != want {
			t.Errorf("%v tokens: vague %v, want %v; note %q; %v to %v", rows[i]["context_tokens"], rows[i]["vague"], want, note, rows[i]["transfer_seconds_low"], rows[i]["transfer_seconds_high"])
		}
	}
	if text := kvbench(t, args...).stdout; !strings.Contains(text, "1 over fit: too vague to rely on") || !strings.Contains(text, "calibrate for longer") {
		t.Errorf("the text does not warn:\n%s", text)
	}
}

// TestPredictFitRefuses a record that holds no calibration.
func TestPredictFitRefuses(t *testing.T) {
	kvbench(t, "predict", "--fit", "testdata/spec.run.json").want(t, exitFailed, "--fit", "not calibrated", "--calibrate")
	kvbench(t, "predict", "--fit", "/nonexistent.json").want(t, exitFailed, "/nonexistent.json")
}

// TestPredictTransport: Ethernet carries TCP, or RoCEv2; what is no Ethernet carries what it
// does. 128 tokens of llama-2-70b are 41,943,040 bytes.
func TestPredictTransport(t *testing.T) {
	const bytes = 41943040
	for _, c := range []struct {
		flags   []string
		seconds float64
		says    string
	}{
		{[]string{"--link", "100gbe"}, bytes / (12.5e9 * 1448 / 1538), "TCP with timestamps at MTU 1500"},
		{[]string{"--link", "100gbe", "--transport", "rdma"}, bytes / (12.5e9 * 4096 / 4178), "RoCEv2 at RoCE MTU 4096"},
		{[]string{"--link", "100Gbit/s", "--transport", "rdma", "--mtu", "1500"}, bytes / (12.5e9 * 1024 / 1106), "RoCEv2 at RoCE MTU 1024"},
		{[]string{"--link", "ib-ndr"}, bytes / (50e9 * 4096 / 4122), "InfiniBand at MTU 4096"},
		{[]string{"--link", "100gbe", "--transport", "rdma", "--framing", "shaped"}, bytes / (12.5e9 * 4096 / 4154), "as a traffic shaper counts it"},
	} {
		args := append([]string{"predict", "--model", "llama-2-70b", "--context", "128"}, c.flags...)
		if got := kvbench(t, append(args, "--format", "json")...).rows(t)[0]["transfer_seconds"].(float64); !within(got, c.seconds, 1e-6) {
			t.Errorf("%v: %.9g s, by hand %.9g", c.flags, got, c.seconds)
		}
		if text := kvbench(t, args...).stdout; !strings.Contains(text, c.says) {
			t.Errorf("%v: the text does not say %q:\n%s", c.flags, c.says, text)
		}
	}
	kvbench(t, "predict", "--transport", "carrier-pigeon").want(t, exitUsage, "choose tcp or rdma")
	kvbench(t, "predict", "--link", "100gbe", "--transport", "rdma", "--mtu", "300").want(t, exitUsage, "no RoCE packet")
	kvbench(t, "predict", "--link", "ib-ndr", "--transport", "rdma").want(t, exitUsage, "no Ethernet")
	kvbench(t, "predict", "--transport", "cuda").want(t, exitUsage, "add --link, such as nvlink4")
	kvbench(t, "predict", "--transport", "rdma", "--framing", "off").want(t, exitUsage, "leave one of the two out")
	launch{env: []string{"KVBENCH_TRANSPORT=cuda"}}.start(t, "predict").end(patience).want(t, exitDone)
	for _, v := range []string{"KVBENCH_OVERLAP=layer", "KVBENCH_SAVED=20%", "KVBENCH_PREFILL=auto"} { // meant for runs
		launch{env: []string{v}}.start(t, "predict").end(patience).want(t, exitDone)
	}
	kvbench(t, "predict", "--overlap", "layer").want(t, exitUsage, "need the prefill")
	kvbench(t, "predict", "--fit", calibratedRun(t, steady), "--transport", "rdma").want(t, exitUsage, "no effect on a fit")
}

// TestPredictLoad has DistServe's load on 100GbE: 1,207,959,552 bytes, ten a second,
// are 96.6 Gbit/s. The mean response, wait and transfer, is that of M/D/1.
func TestPredictLoad(t *testing.T) {
	for _, c := range []struct {
		flags                 []string
		utilization, response float64 // 0: unstable
	}{
		{[]string{"--framing", "off"}, 0.966, 1.485},
		// 1.207959552e10/(12.5e9·8948/9038): ρ 0.97609, S 97.609 ms, wait ρS/(2(1-ρ)) 1.9923 s.
		{[]string{"--mtu", "9000"}, 0.976, 2.090},
		{[]string{"--mtu", "1500"}, 1.026, 0},
	} {
		row := kvbench(t, append([]string{"predict", "--model", "opt-66b", "--context", "512", "--link", "100gbe", "--rate", "10/s", "--format", "json"}, c.flags...)...).rows(t)[0]
		if got := row["offered_bytes_per_second"]; got != 12079595520.0 {
			t.Errorf("%v: offered %v bytes/s", c.flags, got)
		}
		if u := row["utilization"].(float64); !within(u, c.utilization, 5e-4) {
			t.Errorf("%v: utilization %.4f, want %.3f", c.flags, u, c.utilization)
		}
		wait, stable := row["wait_fcfs_seconds"].(float64)
		if stable != (c.response > 0) || strings.HasPrefix(row["verdict"].(string), "unstable") == stable {
			t.Errorf("%v: wait %v, verdict %v", c.flags, row["wait_fcfs_seconds"], row["verdict"])
		}
		if response := wait + row["transfer_seconds"].(float64); stable && !within(response, c.response, 1e-3) {
			t.Errorf("%v: mean response %.4f s, want %.3f", c.flags, response, c.response)
		}
	}
}

// TestPredictPrefill has LLaMA-2-70B's operations: over eight H100 (989e12 each) at
// a utilization of 0.4 they take as many seconds as they are 3164.8e12.
func TestPredictPrefill(t *testing.T) {
	for tokens, flops := range map[string]float64{"1K": 141.56e12, "2K": 285.87e12, "4K": 582.73e12, "32K": 5893.3e12} {
		row := kvbench(t, "predict", "--model", "llama-2-70b", "--context", tokens, "--link", "100gbe", "--framing", "off", "--gpu", "h100", "--gpus", "8", "--mfu", "0.4", "--format", "json").rows(t)[0]
		prefill, transfer := row["prefill_seconds"].(float64), row["transfer_seconds"].(float64)
		if !within(prefill, flops/3164.8e12, 1e-3) {
			t.Errorf("%s: prefill %.5g s, want %.5g", tokens, prefill, flops/3164.8e12)
		}
		if got := row["transfer_over_prefill"].(float64); !within(got, transfer/prefill, 1e-9) {
			t.Errorf("%s: transfer over prefill %g, want %g", tokens, got, transfer/prefill)
		}
		// All of it is exposed, and layers hide from S/prefill on.
		if got := row["hiding_bytes_per_second"].(float64); row["exposed_seconds"] != transfer || !within(got, row["bytes"].(float64)/prefill, 1e-6) {
			t.Errorf("%s: exposed %v of %g s, hides from %g bytes/s", tokens, row["exposed_seconds"], transfer, got)
		}
	}
	text := kvbench(t, "predict", "--model", "llama-2-70b", "--context", "4K", "--link", "100gbe", "--framing", "off", "--prefill", "536.87ms").stdout
	if !strings.Contains(text, "transfer/prefill") || !strings.Contains(text, " 0.2 ") { // 107.374 ms of 536.87
		t.Errorf("the text lacks transfer over prefill, 0.2:\n%s", text)
	}
	if row := kvbench(t, "predict", "--context", "1K", "--link", "100gbe", "--format", "json").rows(t)[0]; row["transfer_over_prefill"] != nil {
		t.Errorf("without a prefill: %v", row)
	}
}

// TestPredictSaysWhatItRestsOn to programs as to people: the lines below the table, and in
// each row the link's rate and framing, the accelerators, and the context from which on the
// exposed transfer is under 5 % of TTFT. By hand 19 transfers are as long as a prefill at
// n = (κ·G·19/B - 2P)/(2·L·d), with κ 327,680 B a token, G 8·989e12·0.4 and P 68.451e9: at
// 196,200 tokens on 400 Gbit/s, past 1M on 100, and below 1 on NVLink.
func TestPredictSaysWhatItRestsOn(t *testing.T) {
	args := []string{"predict", "--model", "llama-2-70b", "--context", "4K", "--link", "100gbe,400gbe,nvlink4", "--gpu", "h100"}
	bare := with(args, "--framing", "off")
	cheap := (327680*8*989e12*0.4*19/50e9 - 2*68.451e9) / (2 * 80 * 8192)
	rows := kvbench(t, with(bare, "--format", "json")...).rows(t)
	for i, want := range []struct{ rate, cheap float64 }{{12.5e9, 0}, {50e9, cheap}, {450e9, 16}} {
		row := rows[i]
		for key, v := range map[string]float64{"link_bytes_per_second": want.rate, "framing_factor": 1, "gpus": 8, "gpu_flops_per_second": 989e12, "mfu": 0.4} {
			if row[key] != v {
				t.Errorf("%v: %s %v, want %g", row["link"], key, row[key], v)
			}
		}
		if row["gpu"] != "h100" {
			t.Errorf("%v: gpu %v", row["link"], row["gpu"])
		}
		if at, found := row["cheap_from_tokens"].(float64); found != (want.cheap > 0) || found && !within(at, want.cheap, 1e-4) {
			t.Errorf("%v: cheap from %v tokens, by hand %.0f", row["link"], row["cheap_from_tokens"], want.cheap)
		}
	}

	// 1448 of 1538 bytes of Ethernet are TCP's payload.
	framed := kvbench(t, with(args, "--format", "json")...)
	row := framed.rows(t)[0]
	if f, _ := row["framing_factor"].(float64); !within(f, 1448./1538, 1e-9) || !strings.Contains(row["framing_basis"].(string), "1448 of 1538 bytes") {
		t.Errorf("framing %v: %v", row["framing_factor"], row["framing_basis"])
	}
	var table struct{ Notes []string }
	if err := json.Unmarshal([]byte(framed.stdout), &table); err != nil {
		t.Fatal(err)
	}
	if text := kvbench(t, args...).stdout; len(table.Notes) == 0 || !strings.HasSuffix(text, "\n"+strings.Join(table.Notes, "\n")+"\n") {
		t.Errorf("the notes %q are not the lines below\n%s", table.Notes, text)
	}

	// A time that was given rests on no accelerator, and a link alone on no prefill; what was
	// fitted has no framing.
	for _, c := range []struct {
		args   []string
		absent []string
	}{
		{with(args[:7], "--prefill", "1s"), []string{"gpu", "gpus", "gpu_flops_per_second", "mfu", "cheap_from_tokens"}},
		{args[:7], []string{"mfu", "cheap_from_tokens"}},
		{with(args[:5], "--fit", calibratedRun(t, steady)), []string{"link_bytes_per_second", "framing_factor", "framing_basis"}},
	} {
		row := kvbench(t, with(c.args, "--format", "json")...).rows(t)[0]
		for _, key := range c.absent {
			if v, there := row[key]; there {
				t.Errorf("%v: %s is %v", c.args, key, v)
			}
		}
	}
}

// TestPredictPrefillOfWindows: layers with a window cost what they look at. By hand on one
// H100 at its peak, 989e12, for 131,072 tokens, with P of the matrices.
//
//	Gemma 3 12B       P 10.76e9: 2820.7e12 + 8 full layers 1125.9e12 + 40 of 1024 87.6e12
//	Mistral 7B v0.1   P 6.98e9:  1829.7e12 + 32 of 4096 277.1e12
//	LLaMA-2-7B        P 6.476e9: 1697.7e12 + 32 full layers 4503.6e12
//
// Gemma's (8·131072 + 40·1024)·8192 bytes take 0.7584 s on 100GbE; a tenth of prefill is as
// much at 7.584 s.
func TestPredictPrefillOfWindows(t *testing.T) {
	args := []string{"predict", "--context", "128K", "--link", "100gbe", "--gpu", "h100", "--gpus", "1", "--mfu", "1", "--saved", "10%", "--format", "json", "--model"}
	for model, flops := range map[string]float64{"gemma-3-12b": 4034.2e12, "mistral-7b-v0.1": 2106.8e12, "llama-2-7b": 6201.3e12} {
		row := kvbench(t, append(args, model)...).rows(t)[0]
		if got := row["prefill_seconds"].(float64); !within(got, flops/989e12, 1e-3) {
			t.Errorf("%s: prefill %.5g s, by hand %.5g", model, got, flops/989e12)
		}
		for _, f := range row["flips"].([]any) {
			f := f.(map[string]any)
			if at, _ := f["at"].(float64); model == "gemma-3-12b" && f["input"] == "prefill" && !within(at, 7.584, 1e-3) {
				t.Errorf("%s: the verdict flips at a prefill of %v s, by hand 7.584", model, f["at"])
			}
		}
	}
}

// TestPredictFlips: the inputs that flip the verdict and their values, worked out by
// hand. 1,342,177,280 bytes over 12.5e9 bytes/s take 107.374 ms.
func TestPredictFlips(t *testing.T) {
	args := []string{"predict", "--model", "llama-2-70b", "--context", "4K", "--link", "100gbe", "--framing", "off"}
	for _, c := range []struct {
		flags string
		flips map[string]float64
		first string
	}{
		// Without overlap the net gain is 0 where the transfer takes the 100 ms that are
		// saved: 13.42 GB/s; or where 107.374 ms are saved. Prefill counts for nothing.
		{"--prefill 377ms --saved 100ms", map[string]float64{"bandwidth": 13.4217728e9, "saved by disaggregation": 0.107374}, "bandwidth"},
		// With it, 80 layers of x and a prefill of c a layer expose x + 79·max(0, x-c):
		// x = 1.34218 ms, c = 2 ms, exposed x. That reaches 20 % of 160 ms, 32 ms, at
		// 80x - 79·2 ms = 32 ms, x = 2.375 ms, or 1,342,177,280/80/2.375e-3 bytes/s; and
		// with prefill P at 107.374 ms - 79P/80 = 0.2P, P = 90.424 ms.
		{"--prefill 160ms --overlap layer --saved 20%", map[string]float64{"bandwidth": 7.06409e9, "prefill": 0.090424}, "bandwidth"},
		// At ten a second ρ is above 1. The mean response of M/D/1, with S 107.374 ms,
		// reaches the 200 ms that are saved at 2(R-S)/(S(2R-S)) = 5.8959 a second.
		{"--prefill 377ms --saved 200ms --rate 10/s", map[string]float64{"arrivals": 5.8959}, "arrivals"},
		// 10 ms are saved: at any prefill that does not hide it, 107 ms do not pay.
		{"--prefill 377ms --saved 10ms", map[string]float64{"bandwidth": 134.217728e9, "saved by disaggregation": 0.107374}, "bandwidth"},
	} {
		row := kvbench(t, append(append(args, strings.Fields(c.flags)...), "--format", "json")...).rows(t)[0]
		found := make(map[string]float64)
		for _, f := range row["flips"].([]any) {
			f := f.(map[string]any)
			if at, ok := f["at"].(float64); ok {
				found[f["input"].(string)] = at
			}
		}
		for input, want := range c.flips {
			if !within(found[input], want, 1e-4) {
				t.Errorf("%s: %s flips at %.6g, by hand %.6g", c.flags, input, found[input], want)
			}
		}
		if text := kvbench(t, append(args, strings.Fields(c.flags)...)...).stdout; !strings.Contains(text, "the verdict flips with ") || !strings.Contains(text, c.first+" at ") {
			t.Errorf("%s: the text lacks the flips:\n%s", c.flags, text)
		}
	}
	// The queue grows without end: what it costs has no number.
	lost := append(args, "--prefill", "377ms", "--saved", "200ms", "--rate", "10/s")
	if row := kvbench(t, append(lost, "--format", "json")...).rows(t)[0]; row["net_gain_seconds"] != nil || row["exposed_seconds"] != nil {
		t.Errorf("an unstable queue has a net gain of %v and exposes %v", row["net_gain_seconds"], row["exposed_seconds"])
	}
	if text := kvbench(t, lost...).stdout; !strings.Contains(text, "unbounded loss") {
		t.Errorf("an unstable queue:\n%s", text)
	}
	// 1,342,177,280 bytes expose 107 ms: of a prefill of 50 ms 2.14748, which a node that
	// queues may save, and a share may say as much as a time. Prefill counts for nothing.
	short := append(args, "--prefill", "50ms")
	for saved, pays := range map[string]bool{"20%": false, "120%": false, "10ms": false, "300%": true, "150ms": true} {
		row := kvbench(t, append(short, "--saved", saved, "--format", "json")...).rows(t)[0]
		if got := row["verdict"].(string); strings.HasPrefix(got, "pays") != pays {
			t.Errorf("--saved %s: %s", saved, got)
		}
		for _, f := range row["flips"].([]any) {
			f := f.(map[string]any)
			if at, _ := f["at"].(float64); f["unit"] == "of prefill" && !within(at, 2.14748, 1e-4) || f["input"] == "saved by disaggregation" && f["unit"] == "s" && !within(at, 0.107374, 1e-4) {
				t.Errorf("--saved %s: %v", saved, f)
			}
		}
	}
	for _, saved := range []string{"-1%", "NaN%", "Inf%", "1e9%", "half"} {
		kvbench(t, append(short, "--saved="+saved)...).want(t, exitUsage, "--saved")
	}
	// 1 µs saved is 107,374 times too little, and so is the bandwidth; and a
	// prefill that its accelerators cannot reach: hidden layers of 582.73e12 FLOPs on eight
	// H100 take 73.6 ms at least, and would expose 50 ms from 58.1 ms down.
	for _, c := range []struct{ flags, says, not string }{
		{"--prefill 377ms --saved 1us", "no value of bandwidth or prefill or saved by disaggregation within a factor of 1000 flips it", "can have"},
		{"--gpu h100 --overlap layer --saved 50ms", "no value that prefill can have flips it", "within a factor"},
	} {
		text := kvbench(t, append(args, strings.Fields(c.flags)...)...).stdout
		if !strings.Contains(text, c.says) || strings.Contains(text, c.not) {
			t.Errorf("%s: the text does not say %q, or says %q:\n%s", c.flags, c.says, c.not, text)
		}
	}
	// Whatever moves alone, nothing is won where nothing is saved.
	none := kvbench(t, append(args, "--prefill", "377ms", "--saved", "0ms")...)
	none.want(t, exitDone)
	if !strings.Contains(none.stdout, "does not pay") || strings.Contains(none.stdout, "flips with") || !strings.Contains(none.stdout, "the verdict stands") {
		t.Errorf("nothing is saved:\n%s", none.stdout)
	}
}

// TestPredictSweeps: as many rows as steps, over a range that is the sweep's own.
func TestPredictSweeps(t *testing.T) {
	for sweep, want := range map[string][2]string{
		"context":   {"256", "131072"},
		"bandwidth": {"100gbe x0.125", "100gbe x8"},
		"rate":      {"0.1", "1.05"}, // utilization
	} {
		key := map[string]string{"context": "context_tokens", "bandwidth": "link", "rate": "utilization"}[sweep]
		args := []string{"predict", "--link", "100gbe", "--sweep", sweep, "--format", "json"}
		if sweep != "context" {
			args = append(args, "--context", "1K")
		}
		rows := kvbench(t, args...).rows(t)
		first, last := printed(rows[0][key]), printed(rows[len(rows)-1][key])
		if first != want[0] || last != want[1] {
			t.Errorf("--sweep %s goes from %s to %s, want %s to %s", sweep, first, last, want[0], want[1])
		}
	}
}

func printed(v any) string {
	if f, ok := v.(float64); ok {
		return fmt.Sprintf("%.6g", f)
	}
	return fmt.Sprint(v)
}

// TestPredictLeavesLinksOut: a default link that an MTU does not fit is left out, and
// said to be; one that was named is refused, and so is an MTU that fits none.
func TestPredictLeavesLinksOut(t *testing.T) {
	args := []string{"predict", "--model", "llama-2-70b", "--context", "1K", "--mtu", "9000"}
	var links []string
	for _, row := range kvbench(t, append(args, "--format", "json")...).rows(t) {
		links = append(links, row["link"].(string))
	}
	if !slices.Equal(links, []string{"100gbe", "nvlink4"}) {
		t.Errorf("links %v", links)
	}
	if text := kvbench(t, args...).stdout; !strings.Contains(text, "left out: --link ib-ndr: ") {
		t.Errorf("what was left out is not said:\n%s", text)
	}
	kvbench(t, append(args, "--link", "100gbe,ib-ndr")...).want(t, exitUsage, "--link ib-ndr: ", "a power of two")
	kvbench(t, "predict", "--mtu", "70000").want(t, exitUsage, "an MTU of 70000 bytes")
}
