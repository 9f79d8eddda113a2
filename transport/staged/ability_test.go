package staged

import (
	"encoding/json"
	"strings"
	"testing"

	"kvbench/transport"
	"kvbench/transport/tcp"
)

func TestAbilityReason(t *testing.T) {
	can := ability{Direct: true}
	for _, c := range []struct {
		own, peer ability
		want      string
	}{
		{ability{}, ability{}, ""}, // the transport below moves host memory only
		{ability{Why: "no CUDA"}, can, "no CUDA"},
		{can, ability{Why: "no CUDA"}, "the peer: no CUDA"},
		{ability{Why: "no CUDA"}, ability{Why: "no CUDA"}, "no CUDA"},
		{ability{Why: "no CUDA"}, ability{Why: "no module"}, "no CUDA; the peer: no module"},
		{can, ability{}, "the peer cannot move GPU memory directly, and does not say why"}, // an older kvbench
	} {
		if got := (abilities{c.own, c.peer}).reason(); got != c.want {
			t.Errorf("%+v and %+v: %q, want %q", c.own, c.peer, got, c.want)
		}
	}
	if got := (abilities{can, ability{Why: strings.Repeat("x", 1<<20)}}).reason(); len(got) > 2*maxReason {
		t.Errorf("%d bytes of what a peer says go into the result", len(got))
	}
}

func TestAbilityOfHostMemoryOnly(t *testing.T) {
	if got := Over(tcp.New()).ability(t.Context(), transport.Config{}); got != (ability{}) {
		t.Errorf("%+v", got)
	}
}

// TestAbilityTravels holds the messages to the names that the two sides know.
func TestAbilityTravels(t *testing.T) {
	b, err := json.Marshal(hello{1, 2, 3, ability{true, "x"}})
	if want := `{"outstanding":1,"chunk_bytes":2,"places":3,"direct":true,"why_not_direct":"x"}`; err != nil || string(b) != want {
		t.Errorf("%s, %v, want %s", b, err, want)
	}
	var old answer
	if err := json.Unmarshal([]byte(`{"inner":"YWJj"}`), &old); err != nil || old.Direct || string(old.Inner) != "abc" {
		t.Errorf("%+v, %v", old, err)
	}
}
