package transporttest

import (
	"strings"
	"testing"

	"kvbench/internal/testenv"
	"kvbench/transport"
	"kvbench/transport/mem"
)

// TestCases holds the short list of cases to what it must have: each body for each
// operation, and either side dialling for each operation and in each body.
func TestCases(t *testing.T) {
	ran := make(map[string]int)
	all := cases(Subject{Listener: mem.New()})
	for _, c := range all {
		if parts := strings.Split(c.name, "/"); len(parts) == 3 {
			op, dials, body := parts[0], parts[1], parts[2]
			ran[op+" "+body]++
			ran[op+" "+dials]++
			ran[dials+" "+body]++
		}
	}
	each := 1
	if testenv.Full {
		each = 2
	}
	for _, b := range bodies {
		for _, by := range []string{transport.Write.String(), transport.Read.String(), "InitiatorDials", "TargetDials"} {
			if n := ran[by+" "+b.name]; n != each {
				t.Errorf("%s runs %d times with %s, want %d", b.name, n, by, each)
			}
		}
	}
	for _, op := range []transport.Op{transport.Write, transport.Read} {
		for _, dials := range []string{"InitiatorDials", "TargetDials"} {
			if n := ran[op.String()+" "+dials]; n < len(bodies)*each/2 {
				t.Errorf("%v has %d cases with %s, want half of %d", op, n, dials, len(bodies)*each)
			}
		}
	}
	if want := 2*each*len(bodies) + 3; len(all) != want {
		t.Errorf("%d cases, want %d", len(all), want)
	}
}
