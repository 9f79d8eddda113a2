package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
	"strings"
	"testing"

	"kvbench/transport"
	"kvbench/transport/tcp"
)

// TestDevices lists this machine, whatever it has: a loopback interface, and TCP that can be used.
func TestDevices(t *testing.T) {
	text := kvbench(t, "devices")
	text.want(t, exitDone)
	for _, s := range []string{"Network interfaces", "RDMA devices", "GPUs", "Transports of this build"} {
		if !strings.Contains(text.stdout, "\n"+s+"\n") && !strings.HasPrefix(text.stdout, s+"\n") {
			t.Errorf("no section %q in\n%s", s, text.stdout)
		}
	}
	if text.stderr != "" {
		t.Errorf("stderr has %q", text.stderr)
	}

	listed := kvbench(t, "devices", "--format", "json")
	listed.want(t, exitDone)
	seen := map[string]map[string]any{}
	for _, r := range listed.rows(t) {
		name, _ := r["name"].(string)
		if memory, _ := r["memory"].([]any); len(memory) == 1 && memory[0] == "cuda" && name != "cuda" {
			name += " staged"
		}
		seen[fmt.Sprint(r["kind"], " ", name)] = r
	}
	if r := seen["transport tcp"]; r["usable"] != true || r["write"] != true || r["read"] != true || r["reason"] != nil {
		t.Errorf("tcp: %v", r)
	}
	if r := seen["transport tcp staged"]; r["same_host_only"] != false {
		t.Errorf("tcp for GPU memory: %v", r)
	}
	loopback := false
	for _, r := range seen {
		loopback = loopback || r["kind"] == "nic" && r["class"] == "loopback" && r["mtu_bytes"].(float64) > 0
	}
	if !loopback {
		t.Errorf("no loopback interface in %s", listed.stdout)
	}

	table := kvbench(t, "devices", "--format", "csv")
	table.want(t, exitDone)
	records, err := csv.NewReader(strings.NewReader(table.stdout)).ReadAll() // every row as long as the first
	if err != nil || len(records) != len(listed.rows(t))+1 || records[0][0] != "kind" {
		t.Errorf("CSV of %d records beside %d rows: %v", len(records), len(listed.rows(t)), err)
	}
	kvbench(t, "devices", "--format", "yaml").want(t, exitUsage, "choose text, json or csv")
	kvbench(t, "devices", "eth0").want(t, exitUsage, "eth0")
}

// withLanes is a transport that chooses among lanes, or cannot list them.
type withLanes struct {
	transport.Transport
	lanes         []transport.Lane
	probe, listed error
}

func (w withLanes) Probe(context.Context) error                     { return w.probe }
func (w withLanes) Lanes(context.Context) ([]transport.Lane, error) { return w.lanes, w.listed }

// TestDevicesLanes: lanes are listed, and what keeps a transport from working is
// said once and never ends the command.
func TestDevicesLanes(t *testing.T) {
	unavailable := fmt.Errorf("%w: no library: install it", transport.ErrUnavailable)
	for _, c := range []struct {
		name          string
		probe, listed error
		usable        bool
	}{
		{"usable", nil, nil, true},
		{"unavailable", unavailable, unavailable, false},
		{"no list", nil, unavailable, false},
	} {
		var stdout, stderr bytes.Buffer
		lanes := []transport.Lane{{Name: "rc_verbs", Device: "rxe0:1", RDMA: true, Software: true, Usable: true}, {Name: "ud_verbs", Device: "rxe0:1", RDMA: true, Reason: "not for this"}}
		if c.listed != nil {
			lanes = nil
		}
		a := &app{out: &stdout, err: &stderr, transports: []transport.Transport{withLanes{tcp.New(), lanes, c.probe, c.listed}}}
		if status := a.run(t.Context(), []string{"devices"}); status != exitDone {
			t.Errorf("%s: exit status %d: %s", c.name, status, stderr.String())
		}
		got := stdout.String()
		if n := strings.Count(got, "no library: install it"); n != 1 && !c.usable || n != 0 && c.usable {
			t.Errorf("%s: the reason is there %d times:\n%s", c.name, n, got)
		}
		if has := strings.Contains(got, "ud_verbs/rxe0:1: not for this"); has != c.usable {
			t.Errorf("%s: lanes are listed: %v\n%s", c.name, has, got)
		}
	}
}
