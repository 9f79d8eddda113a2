package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestConfigIsResolved: a record has what its run went by. What a default follows from
// decides: ranks at decode are those at prefill, the link's MTU is Ethernet's 1500, and a
// run for a time counts no requests.
func TestConfigIsResolved(t *testing.T) {
	const absent = "(absent)"
	for name, c := range map[string]struct {
		flags string
		want  map[string]string
	}{
		"defaults": {"--requests 2", map[string]string{
			"command": "loopback", "requests": "2", "duration": absent, "tp": "1", "tp-decode": "1", "pp-decode": "1", "memory": "host",
			"mtu": absent, "alpha": absent, "arrivals": absent, "lane": absent, "rdma-op": absent, "prefill": absent, "gpus": absent, "fragmentation": absent,
		}},
		"ranks":                 {"--requests 2 --tp 4 --pp 2", map[string]string{"tp-decode": "4", "pp-decode": "2"}},
		"other ranks at decode": {"--requests 2 --tp 4 --tp-decode 2", map[string]string{"tp-decode": "2"}},
		"for a time, against a link": {"--duration 100ms --link 100gbe", map[string]string{
			"duration": "100ms", "requests": absent, "link": "100gbe", "mtu": "1500", "alpha": "0", "framing": "auto",
		}},
		"an MTU":             {"--requests 2 --link 100gbe --mtu 9000", map[string]string{"mtu": "9000"}},
		"framing of its own": {"--requests 2 --link 100gbe --framing off", map[string]string{"mtu": absent, "framing": "off"}},
		"open loop":          {"--requests 2 --rate 100/s", map[string]string{"rate": "100/s", "arrivals": "poisson"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(t.TempDir(), "run.json")
			start(t, append(with(append([]string{"loopback"}, tiny...), "--out", out), strings.Fields(c.flags)...)...).end(patience).want(t, exitDone)
			config := readRun(t, out).Config
			for flag, want := range c.want {
				got, ok := config[flag]
				if !ok {
					got = absent
				}
				if got != want {
					t.Errorf("%s is %q, want %q", flag, got, want)
				}
			}
		})
	}
}

// TestConfigOfRDMA has the operation that follows from the direction.
func TestConfigOfRDMA(t *testing.T) {
	needUCX(t)
	for direction, want := range map[string]string{"push": "put", "pull": "get"} {
		t.Run(direction, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(t.TempDir(), "run.json")
			start(t, append(with(append([]string{"loopback"}, small...), "--out", out), "--transport", "rdma", "--lane", "shm", "--direction", direction)...).end(patience).want(t, exitDone)
			config := readRun(t, out).Config
			if _, buffers := config["socket-buffer"]; config["rdma-op"] != want || config["lane"] != "shm" || buffers {
				t.Errorf("%s: %v", direction, config)
			}
		})
	}
}
