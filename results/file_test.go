package results

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// sample is a record with something in every part.
func sample(t *testing.T) *Run {
	t.Helper()
	low, high := 0.9, 1.1
	service := latency(t, upTo(100))
	ratio := &Prediction{Seconds: 0.05, SecondsLow: 0.05, SecondsHigh: 0.05, Ratio: 1, Low: 0.9, High: &high}
	return &Run{
		Schema: Schema, Version: "devel", ID: "00000000000000ff", Started: "2026-01-02T03:04:05Z", Complete: true,
		Config:    map[string]string{"command": "producer", "model": "llama-2-70b <&>"},
		Transport: Transport{Name: "tcp"},
		Link:      &Link{Name: "100gbe", BytesPerSecond: 12.5e9, MTU: 1500, FramingFactor: 0.9415, FramingBasis: "TCP", Source: "flag"},
		Fit:       &Fit{Alpha: Estimate{1e-5, &low, nil}, Samples: []Sample{{1, 1, 4096, 1e-5}}},
		Cells: []Cell{{
			ContextTokens: 1024, Bytes: 335544320, KVBytes: 335544320, Layers: 80, Descriptors: 160, Requests: 100, Concurrency: 1, Complete: true,
			Latency:   Latencies{Service: service},
			Predicted: Predictions{Spec: ratio}, Verdict: Verdict{Status: "pass"},
		}},
	}
}

func TestEncodeDecode(t *testing.T) {
	want := sample(t)
	b, err := Encode(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read back %+v, written %+v", got, want)
	}
	again, err := Encode(got)
	if err != nil || !bytes.Equal(again, b) {
		t.Errorf("written again it differs: %v", err)
	}
	if !bytes.Contains(b, []byte("<&>")) {
		t.Error("text is escaped as for HTML")
	}
	// What is not known is null, not left out: readers rely on the keys.
	for _, key := range []string{`"fit": null`, `"link": null`, `"p999_ns": null`, `"high": null`} {
		want.Fit, want.Link = nil, nil
		if key == `"high": null` {
			want.Cells[0].Predicted.Spec.High = nil
		}
		if b, err := Encode(want); err != nil || !bytes.Contains(b, []byte(key)) {
			t.Errorf("no %s in the record (%v)", key, err)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	b, err := Encode(sample(t))
	if err != nil {
		t.Fatal(err)
	}
	replace := func(old, new string) string {
		t.Helper()
		if !strings.Contains(string(b), old) {
			t.Fatalf("%q is not in the record", old)
		}
		return strings.Replace(string(b), old, new, 1)
	}
	for name, c := range map[string]struct{ text, says string }{
		"empty":             {"", ""},
		"garbage":           {"\x00\xff not json", ""},
		"truncated":         {string(b[:len(b)/2]), ""},
		"truncated by one":  {strings.TrimRight(string(b), "}\n"), ""},
		"two records":       {string(b) + string(b), ""},
		"an array":          {"[]", ""},
		"no schema":         {"{}", `schema ""`},
		"other schema":      {replace("kvbench.run/1", "kvbench.run/2"), `schema "kvbench.run/2", want "kvbench.run/1"`},
		"a long schema":     {replace("kvbench.run/1", strings.Repeat("x", 1000)), "want"},
		"wrong type":        {replace(`"bytes": 335544320`, `"bytes": "many"`), "bytes"},
		"too large a size":  {replace(`"bytes": 335544320`, `"bytes": 99999999999999999999`), "bytes"},
		"negative size":     {replace(`"bytes": 335544320`, `"bytes": -1`), "cell 0"},
		"no context":        {replace(`"context_tokens": 1024`, `"context_tokens": 0`), "cell 0"},
		"negative layers":   {replace(`"layers": 80`, `"layers": -80`), "cell 0"},
		"NaN":               {replace(`"ratio": 1`, `"ratio": NaN`), ""},
		"a package.json":    {`{"name": "x", "version": "1"}`, "schema"},
		"deeply nested":     {strings.Repeat("[", 100000), ""},
		"cells of one null": {replace(`"context_tokens": 1024`, `"context_tokens": null`), "cell 0"},
	} {
		if _, err := Decode(strings.NewReader(c.text)); !errors.Is(err, ErrRecord) || !strings.Contains(err.Error(), c.says) || len(err.Error()) > 300 {
			t.Errorf("%s: error %v, want ErrRecord that says %q", name, err, c.says)
		}
	}
}

// TestNewerFields: a record of a later version of the same schema may have more keys.
func TestNewerFields(t *testing.T) {
	b, err := Encode(sample(t))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(b), `"schema"`, `"added_later": {"x": [1]}, "schema"`, 1)
	if _, err := Decode(strings.NewReader(text)); err != nil {
		t.Error(err)
	}
}

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	if _, err := ReadFile(filepath.Join(dir, "none.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if _, err := ReadFile(dir); err == nil {
		t.Error("a directory was read")
	}
	path := filepath.Join(dir, "x.json")
	if err := os.WriteFile(path, []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(path); !errors.Is(err, ErrRecord) || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v does not name the file", err)
	}
}

// files lists what a directory holds, temporary files too.
func files(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestWrite: the old file is there until the new one is whole, and nothing else is left.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "run.json")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(path); string(b) != "old" || len(files(t, dir)) != 1 {
		t.Errorf("Create left %q and %v", b, files(t, dir))
	}
	run := sample(t)
	bad := sample(t)
	bad.Cells[0].Goodput = inf() // JSON has none
	if err := f.Write(bad); err == nil {
		t.Error("a record that cannot be encoded was written")
	}
	if b, _ := os.ReadFile(path); string(b) != "old" || len(files(t, dir)) != 1 {
		t.Errorf("after a failed Write: %q and %v", b, files(t, dir))
	}
	if err := f.Write(run); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadFile(path); err != nil || got.ID != run.ID {
		t.Errorf("read back %v, %v", got, err)
	}
	if len(files(t, dir)) != 1 {
		t.Errorf("Write left %v", files(t, dir))
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 { // as it was
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// TestCreateBesideLeftovers: what another process of the same number left behind, as in
// another container, keeps no record from being written. A new file has the mode that the
// umask leaves.
func TestCreateBesideLeftovers(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "run.json")
	leftover := filepath.Join(dir, fmt.Sprintf(".run.json.%d.tmp", os.Getpid()))
	plain, err := os.OpenFile(leftover, os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	plain.Close()
	for range 2 {
		f, err := Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Write(sample(t)); err != nil {
			t.Fatal(err)
		}
	}
	if got := files(t, dir); len(got) != 2 {
		t.Errorf("there are %v, want the record and the leftover", got)
	}
	want, errWant := os.Stat(leftover)
	got, err := os.Stat(path)
	if err != nil || errWant != nil || got.Mode() != want.Mode() {
		t.Errorf("mode %v, want %v of a file that a program makes (%v, %v)", got.Mode(), want.Mode(), err, errWant)
	}
}

func inf() float64 { var zero float64; return 1 / zero }

// TestWriteFails at the last step: a directory has taken the file's place.
func TestWriteFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "run.json")
	f, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(path, "in the way"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := f.Write(sample(t)); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v, want one that names the file", err)
	}
	if got := files(t, dir); len(got) != 1 {
		t.Errorf("a failed Write left %v", got)
	}
}

func TestCreateRefuses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ path, says string }{
		"directory":        {dir, "is a directory"},
		"no such parent":   {filepath.Join(dir, "none", "x.json"), "choose another --out"},
		"parent is a file": {filepath.Join(file, "x.json"), "choose another --out"},
	} {
		if _, err := Create(c.path); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: error %v, want one that says %q", name, err, c.says)
		}
	}
	if got := files(t, dir); len(got) != 1 {
		t.Errorf("left behind: %v", got)
	}
}

// FuzzDecode reads what may be a record. One that is read can be written, is the
// same when it is read again, and its histograms are read without harm.
func FuzzDecode(f *testing.F) {
	run := &Run{Schema: Schema, Cells: []Cell{{ContextTokens: 1}}}
	h := of(time.Millisecond, time.Second)
	l, err := h.Latency()
	if err != nil {
		f.Fatal(err)
	}
	run.Cells[0].Latency = Latencies{Response: l, Service: l, Layer: l}
	b, err := Encode(run)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"schema":"kvbench.run/1"}`))
	f.Add([]byte(`{"schema":"kvbench.run/1","cells":[{"context_tokens":1,"latency":{"service":{"count":1,"hdr":"HISTFAAAABN4nJNpmSzMwMDAxQAAANoAEw=="}}}]}`))
	f.Add([]byte(`{"schema":"kvbench.run/1","fit":{"samples":[{}]},"transport":{"details":{"a":[]}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		run, err := Decode(bytes.NewReader(b))
		if err != nil {
			if !errors.Is(err, ErrRecord) {
				t.Fatalf("error %v is no ErrRecord", err)
			}
			return
		}
		for _, c := range run.Cells {
			if h, err := c.Latency.Service.Histogram(); err == nil {
				_ = h.Quantile(0.5)
			}
		}
		first, err := Encode(run)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		again, err := Decode(bytes.NewReader(first))
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		if second, err := Encode(again); err != nil || !bytes.Equal(first, second) {
			t.Fatalf("read and written again it differs: %v", err)
		}
	})
}
