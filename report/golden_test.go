package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kvbench/internal/hostinfo"
	"kvbench/results"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// golden compares got with testdata/name.golden.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; make it with: go test ./report -update", err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (if that is meant: go test ./report -update)\n--- want\n%s\n--- got\n%s", path, want, got)
	}
}

func write(t *testing.T, table Table, f Format) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := table.Write(&b, f); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestTable(t *testing.T) {
	table := Table{
		Columns: []Column{{"name", "name"}, {"bytes", "size"}, {"", "people only"}, {"programs_only", ""}, {"sometimes", "sometimes"}},
		Rows: [][]Cell{
			{{"a", "a"}, {int64(1 << 60), "1.153 EB"}, {nil, "x"}, {true, ""}, {Absent, "-"}},
			{{"quote \" comma , line\nend", "long"}, {nil, "-"}, {nil, ""}, {1.5, ""}, {[]int{1, 2}, "1 2"}},
			{{"µ", "µ"}, {0, "0 B"}, {nil, "µ"}, {"<&>", ""}, {"", ""}},
		},
		Notes: []string{"a note"},
	}
	for _, f := range []Format{Text, JSON, CSV} {
		golden(t, "table."+string(f), write(t, table, f))
	}
}

// TestEmptyTable: no rows is still a table that programs can read.
func TestEmptyTable(t *testing.T) {
	table := Table{Columns: []Column{{"a", "A"}}}
	var got struct{ Rows, Notes []any }
	if err := json.Unmarshal(write(t, table, JSON), &got); err != nil || got.Rows == nil || got.Notes == nil || len(got.Rows)+len(got.Notes) != 0 {
		t.Errorf("JSON of an empty table: %v, %v", got, err)
	}
	if got := string(write(t, table, CSV)); got != "a\n" {
		t.Errorf("CSV of an empty table: %q", got)
	}
}

// TestNotesForPrograms: the lines below a table stand beside the rows of JSON, whatever is in them.
func TestNotesForPrograms(t *testing.T) {
	table := Table{Columns: []Column{{"a", "A"}}, Rows: [][]Cell{{{1, "1"}}}, Notes: []string{"a note", "<\"quoted\"> & \n broken: 5 µs", ""}}
	var got struct {
		Rows  []map[string]any
		Notes []string
	}
	if err := json.Unmarshal(write(t, table, JSON), &got); err != nil || len(got.Rows) != 1 || !slices.Equal(got.Notes, table.Notes) {
		t.Errorf("%v: %+v", err, got)
	}
}

func TestParseFormat(t *testing.T) {
	for _, s := range []string{"text", "json", "csv"} {
		if f, err := ParseFormat(s); err != nil || string(f) != s {
			t.Errorf("ParseFormat(%q) = %q, %v", s, f, err)
		}
	}
	for _, s := range []string{"", "JSON", "yaml", "text "} {
		if _, err := ParseFormat(s); err == nil || !strings.Contains(err.Error(), "choose text, json or csv") {
			t.Errorf("ParseFormat(%q): %v", s, err)
		}
	}
}

// repeated is the latency of n samples of d.
func repeated(t *testing.T, n int, d time.Duration) results.Latency {
	t.Helper()
	h := results.NewHistogram()
	for range n {
		h.Record(d)
	}
	l, err := h.Latency()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// measured is a run of one cell: 20 requests of 30 ms with 80 layers of 375 µs.
func measured(t *testing.T) *results.Run {
	t.Helper()
	return &results.Run{
		Schema: results.Schema, Complete: true,
		Producer:  results.Side{Host: hostinfo.Host{Hostname: "prefill"}},
		Consumer:  results.Side{Host: hostinfo.Host{Hostname: "decode"}},
		Transport: transportOver("tcp/eth0"),
		Cells: []results.Cell{{
			ContextTokens: 1024, Bytes: 335544320, WorkingSetBytes: 335544320, Layers: 80, Descriptors: 160, Requests: 20, Complete: true,
			Goodput: 335544320 / 0.030,
			Latency: results.Latencies{Service: repeated(t, 20, 30*time.Millisecond), Layer: repeated(t, 1600, 375*time.Microsecond)},
			Verdict: results.Verdict{Status: "unchecked", Reason: "no tolerance was asked for"},
			Verify:  results.Verification{Mode: "stamp"},
		}},
	}
}

func transportOver(lane string) (t results.Transport) {
	t.Name, t.Lane = "tcp", lane
	return t
}

// withSpec, withFit add what a run was held against.
func withSpec(r *results.Run) {
	r.Link = &results.Link{Name: "100gbe", BytesPerSecond: 12.5e9, MTU: 1500, FramingFactor: 1448.0 / 1538, FramingBasis: "TCP with timestamps at MTU 1500"}
	r.Cells[0].Predicted.Spec = &results.Prediction{Seconds: 0.02851, Ratio: 1.052}
	r.Cells[0].Verdict = results.Verdict{Status: "pass", Against: "spec", Tolerance: 0.15, Reason: "spec: measured is 1.05 of predicted, within 15 %"}
}

func withFit(r *results.Run) {
	low, high := 11e9, 12e9
	r.Fit = &results.Fit{
		Alpha: results.Estimate{Value: 2e-5}, Beta: results.Estimate{Value: 1e-5}, Gamma: results.Estimate{Value: 0},
		Bandwidth: results.Estimate{Value: 11.5e9, Low: &low, High: &high}, MAPE: 0.012, Worst: 0.05, Notes: []string{"a note of the fit"},
	}
	r.Cells[0].Predicted.Fit = &results.Prediction{Seconds: 0.0292, Ratio: 1.027, Note: "larger than any calibrated batch"}
}

func TestRunTable(t *testing.T) {
	for name, change := range map[string]func(*results.Run){
		"plain": func(*results.Run) {},
		"spec":  withSpec,
		"fit":   withFit,
		"both":  func(r *results.Run) { withSpec(r); withFit(r) },
		"failed": func(r *results.Run) {
			withSpec(r)
			r.Cells[0].Verdict = results.Verdict{Status: "fail", Reason: "spec: measured is 1.05 of predicted, outside 2 %", Limiter: "slower device", Evidence: "eth0 runs at 10 Gbit/s"}
		},
		"corrupt": func(r *results.Run) {
			r.Complete, r.Incomplete = false, "data arrived wrong: 1 of 80 blocks"
			r.Cells[0].Complete = false
			r.Cells[0].Verify.Checked, r.Cells[0].Verify.Mismatched = 80, 1
			r.Cells[0].Verdict = results.Verdict{Status: "fail", Reason: "data arrived wrong: request 1, transfer 0, block 0"}
		},
		"incomplete": func(r *results.Run) {
			r.Complete, r.Incomplete = false, "interrupted"
			r.Cells[0].Complete = false
			r.Cells[0].Verdict = results.Verdict{Status: "fail", Reason: "not all requests were measured"}
		},
		"nothing measured": func(r *results.Run) {
			r.Complete, r.Incomplete = false, "interrupted"
			r.Cells = []results.Cell{{ContextTokens: 100, Bytes: 1, WorkingSetBytes: 1, Latency: results.Latencies{Service: repeated(t, 0, 0), Layer: repeated(t, 0, 0)}, Verdict: results.Verdict{Status: "fail"}}}
		},
		// Nothing is exposed of no request: 0 would read as a measurement, also in a record of before.
		"nothing measured of an overlap": func(r *results.Run) {
			r.Complete, r.Incomplete = false, "interrupted"
			zero := 0.0
			r.Cells = []results.Cell{{
				ContextTokens: 100, Bytes: 1, WorkingSetBytes: 1, Latency: results.Latencies{Service: repeated(t, 0, 0), Layer: repeated(t, 0, 0)}, Verdict: results.Verdict{Status: "fail"},
				Predicted: results.Predictions{Spec: &results.Prediction{Seconds: 0.042}},
				Overlap:   &results.Overlap{PrefillSeconds: 0.04, Exposed50: results.Estimate{Low: &zero, High: &zero}, Spec: &results.Prediction{Seconds: 0.002}},
			}}
		},
		// Under a prefill of 40 ms 3 ms were exposed, where the link leaves 2 and the fit 2.5:
		// ratios of 1.5 and 1.2, while 43 ms for 42 and 42.5 of service are near 1.
		"overlap": func(r *results.Run) {
			withSpec(r)
			withFit(r)
			c := &r.Cells[0]
			c.Predicted.Spec, c.Predicted.Fit = &results.Prediction{Seconds: 0.042, Ratio: 1.024}, &results.Prediction{Seconds: 0.0425, Ratio: 1.012}
			c.Overlap = &results.Overlap{
				PrefillSeconds: 0.04, Exposed50: results.Estimate{Value: 0.003},
				Spec: &results.Prediction{Seconds: 0.002, Ratio: 1.5}, Fit: &results.Prediction{Seconds: 0.0025, Ratio: 1.2},
			}
			c.Verdict = results.Verdict{Status: "fail", Against: "spec", Tolerance: 0.3, Reason: "spec: measured is 1.5 of predicted, outside 30 %"}
		},
		"pool": func(r *results.Run) { r.Cells[0].WorkingSetBytes = 4 << 20 },
	} {
		t.Run(name, func(t *testing.T) {
			r := measured(t)
			change(r)
			table := Run(r)
			file := "run-" + strings.ReplaceAll(name, " ", "-")
			golden(t, file+".text", write(t, table, Text))
			if name == "both" || name == "plain" || name == "overlap" || name == "incomplete" {
				golden(t, file+".json", write(t, table, JSON))
				golden(t, file+".csv", write(t, table, CSV))
			}
			for i, row := range table.Rows {
				if len(row) != len(table.Columns) {
					t.Errorf("row %d has %d cells under %d columns", i, len(row), len(table.Columns))
				}
			}
		})
	}
}

// TestFormatsAgree: JSON and CSV of a run hold the same keys and values.
func TestFormatsAgree(t *testing.T) {
	r := measured(t)
	withSpec(r)
	withFit(r)
	var got struct{ Rows []map[string]any }
	if err := json.Unmarshal(write(t, Run(r), JSON), &got); err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(bytes.NewReader(write(t, Run(r), CSV))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(lines) != 2 || len(got.Rows) != 1 || len(lines[0]) != len(got.Rows[0]) {
		t.Fatalf("%d lines of CSV with %d keys, %d rows of JSON with %d", len(lines), len(lines[0]), len(got.Rows), len(got.Rows[0]))
	}
	for i, key := range lines[0] {
		v, ok := got.Rows[0][key]
		if !ok {
			t.Errorf("key %q is not in the JSON", key)
			continue
		}
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if want := strings.Trim(string(b), `"`); want != lines[1][i] && !(v == nil && lines[1][i] == "") && !sameNumber(v, lines[1][i]) {
			t.Errorf("%s is %s in JSON and %s in CSV", key, want, lines[1][i])
		}
	}
}

// TestCaveatsNameTheirRows: what the fit says of some of the contexts names them, once
// where it is the same.
func TestCaveatsNameTheirRows(t *testing.T) {
	cell := func(tokens int64, note string, vague bool) results.Cell {
		return results.Cell{ContextTokens: tokens, Predicted: results.Predictions{Fit: &results.Prediction{Note: note, Vague: vague}}}
	}
	got := fitCaveats([]results.Cell{cell(16, "could be anything", true), cell(512, "", false), {ContextTokens: 600}, cell(2048, "larger", false), cell(4096, "larger", false)})
	want := []string{
		"16: fit: too vague to rely on: could be anything",
		"2K, 4K: fit: extrapolated, so the interval is too narrow: larger",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func sameNumber(v any, s string) bool {
	var f float64
	n, ok := v.(float64)
	return ok && json.Unmarshal([]byte(s), &f) == nil && f == n
}

// TestOpenBounds: an interval that is open on a side says so: 0 s of which only the least is
// known may be anything.
func TestOpenBounds(t *testing.T) {
	low, high := 0.0, 2e-6
	for _, c := range []struct {
		estimate results.Estimate
		want     string
	}{
		{results.Estimate{Value: 0, Low: &low, High: &high}, "each further layer 0 s (0 s to 2 µs),"},
		{results.Estimate{Value: 0, Low: &low}, "each further layer 0 s (from 0 s on),"},
		{results.Estimate{Value: 1e-6, High: &high}, "each further layer 1 µs (up to 2 µs),"},
		{results.Estimate{Value: 1e-6}, "each further layer 1 µs,"},
	} {
		r := measured(t)
		withFit(r)
		r.Fit.Beta = c.estimate
		if notes := strings.Join(Run(r).Notes, "\n"); !strings.Contains(notes, c.want) {
			t.Errorf("%+v: %q, want %q", c.estimate, notes, c.want)
		}
	}
}
