package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kvbench/internal/testenv"
)

// describedIn says under which headings of docs/results.md the keys of an object are,
// by its path in a record; the longest that begins the path counts.
var describedIn = map[string][]string{
	"":                                  {"Top level"},
	"producer":                          {"A side"},
	"consumer":                          {"A side"},
	"transport":                         {"Transport"},
	"transport.details":                 {"Details"},
	"transport.consumer.details":        {"Details"},
	"transport.staging":                 {"Staging"},
	"transport.consumer.staging":        {"Staging"},
	"link":                              {"Link"},
	"fit":                               {"Fit"},
	"fit.taken.device":                  {"A side"},
	"stream_probe":                      {"Stream probe"},
	"cells":                             {"A cell"},
	"cells.latency":                     {"Latency"},
	"cells.service_p50_seconds":         {"Intervals"},
	"cells.predicted.spec":              {"Intervals"},
	"cells.predicted.fit":               {"Intervals"},
	"cells.predicted.staged":            {"Intervals"},
	"cells.overlap.spec":                {"Intervals"},
	"cells.overlap.fit":                 {"Intervals"},
	"cells.overlap.exposed_p50_seconds": {"Intervals"},
}

// named are objects whose keys are names of something else: flags, variables, counters;
// and what joins two GPUs, whose keys are in docs/cuda.md.
var named = []string{"config", "details.ucx_environment", "details.port_counters", "details.link"}

// TestEveryKeyIsDescribed holds the keys of real records against docs/results.md: none
// is left out under the heading that it belongs to.
func TestEveryKeyIsDescribed(t *testing.T) {
	const probed = "calibrated, with a link"
	sections := codeOf(t, filepath.Join("..", "..", "docs", "results.md"))
	double := func(t *testing.T) launch { return withDouble(t) }
	real := func(*testing.T) launch { return launch{} }
	shm := func(t *testing.T) launch { needUCX(t); return launch{env: []string{"UCX_LOG_LEVEL=warn"}} }
	context := "128"
	if testenv.Full {
		context = "512"
	}
	for _, c := range []struct {
		name, flags string
		how         func(*testing.T) launch
	}{
		// Loopback is slower than this link, so the run also tries more streams.
		{probed, "--context " + context + " --requests 3 --link 400gbe", real},
		{"a calibration of before", "--context 16 --requests 3 --calibrate " + calibrationOf(t, "tcp/lo"), real},
		{"open loop", "--context 16 --requests 12 --rate 100/s --calibrate off", real},
		{"overlap", "--context 16 --requests 3 --overlap layer --prefill 20ms --calibrate off --link 100gbe", real},
		{"for a time", "--context 16 --duration 200ms --tp 4 --link 100gbe --calibrate off", real},
		{"rdma", "--context 16 --requests 3 --transport rdma --lane shm --calibrate off", shm},
		{"staged", "--context 16 --requests 3 --memory cuda:0 --calibrate off", double},
		{"cuda", "--context 16 --requests 3 --transport cuda --calibrate off", double},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(t.TempDir(), "run.json")
			c.how(t).start(t, append([]string{"loopback", "--model", "qwen3-0.6b", "--warmup", "0", "--out", out}, strings.Fields(c.flags)...)...).end(patience).want(t, exitDone)
			b, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			var record map[string]any
			if err := json.Unmarshal(b, &record); err != nil {
				t.Fatal(err)
			}
			if _, ok := record["stream_probe"]; !ok && c.name == probed {
				t.Error("more streams were not tried, so the keys of that are not checked")
			}
			for path, keys := range objectsOf(record, "") {
				headings := headingsOf(path)
				for _, key := range keys {
					if !slices.ContainsFunc(headings, func(h string) bool { return slices.Contains(sections[h], key) }) {
						t.Errorf("%s of %q is not under %q in docs/results.md", key, path, headings)
					}
				}
			}
		})
	}
}

// objectsOf returns the keys of every object in a JSON value by its path; elements of
// an array share one.
func objectsOf(v any, path string) map[string][]string {
	found := make(map[string][]string)
	within := func(v any, path string) {
		for p, keys := range objectsOf(v, path) {
			found[p] = append(found[p], keys...)
		}
	}
	switch v := v.(type) {
	case []any:
		for _, element := range v {
			within(element, path)
		}
	case map[string]any:
		if slices.ContainsFunc(named, func(n string) bool { return path == n || strings.HasSuffix(path, "."+n) }) {
			return nil
		}
		found[path] = slices.Collect(maps.Keys(v))
		for key, member := range v {
			within(member, strings.TrimPrefix(path+"."+key, "."))
		}
	}
	return found
}

// headingsOf are those under which the keys of an object are.
func headingsOf(path string) []string {
	for {
		if headings, ok := describedIn[path]; ok {
			return headings
		}
		path = path[:max(0, strings.LastIndex(path, "."))]
	}
}

var (
	codeSpan = regexp.MustCompile("`[^`\n]+`")
	keyName  = regexp.MustCompile(`[a-z][a-z0-9_]*`)
)

// codeOf returns the names that stand as code under each heading of a page.
func codeOf(t *testing.T, page string) map[string][]string {
	t.Helper()
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	names, heading := make(map[string][]string), ""
	for line := range strings.Lines(string(b)) {
		if h, ok := strings.CutPrefix(line, "## "); ok {
			heading = strings.TrimSpace(h)
		}
		for _, span := range codeSpan.FindAllString(line, -1) {
			names[heading] = append(names[heading], keyName.FindAllString(span, -1)...)
		}
	}
	return names
}
