package staged_test

import (
	"errors"
	"strings"
	"testing"

	"kvbench/internal/cudadrv/testdouble"
	"kvbench/internal/testenv"
	"kvbench/transport"
	"kvbench/transport/rdma"
	"kvbench/transport/staged"
)

// needUCX skips where UCX is not there.
func needUCX(t *testing.T) {
	t.Helper()
	testdouble.Only(t)
	if err := rdma.New().Probe(t.Context()); err != nil {
		testenv.Skip(t, "rdma", err.Error())
	}
}

// TestDirectWhereBothCan brings two sides together that can move GPU memory directly
// over UCX, or of which one cannot: they take the same way, each knows whose doing it
// is, and either may dial.
func TestDirectWhereBothCan(t *testing.T) {
	needUCX(t)
	able, unable := staged.Over(rdma.WithReachableGPUs()), staged.Over(rdma.New())
	const why = "lane tcp has no device that reaches GPU memory"
	cfg := transport.Config{Lane: "tcp"}
	for name, c := range map[string]struct {
		listens, dials    transport.Transport
		direct            bool
		listener, dialler string
	}{
		"both":         {able, able, true, "", ""},
		"the dialler":  {unable, able, false, why, "the peer: " + why},
		"the listener": {able, unable, false, "the peer: " + why, why},
		"neither":      {unable, unable, false, why, why},
	} {
		for _, reversed := range []bool{false, true} {
			here, there := meet(t, c.listens, c.dials, cfg, reversed)
			for _, side := range []struct {
				e      transport.Endpoint
				reason string
			}{{there, c.listener}, {here, c.dialler}} {
				p := side.e.Path()
				if (p.Staging == nil) != c.direct || p.Staging != nil && p.Staging.Reason != side.reason {
					t.Errorf("%s, target dials %v: staging %+v, want direct %v, reason %q", name, reversed, p.Staging, c.direct, side.reason)
				}
				if p.Details["gpu"] != "cuda:0" {
					t.Errorf("%s: the path names GPU %v", name, p.Details["gpu"])
				}
				m, err := side.e.(transport.Allocator).Allocate(4096)
				if err != nil || m.Kind != transport.CUDAMemory {
					t.Errorf("%s: allocated %+v, %v", name, m, err)
				}
			}
			if err := errors.Join(here.Close(), there.Close()); err != nil {
				t.Errorf("%s: Close: %v", name, err)
			}
		}
	}
}

// meet connects two sides; reversed has the target dial.
func meet(t *testing.T, listens, dials transport.Transport, cfg transport.Config, reversed bool) (here, there transport.Endpoint) {
	t.Helper()
	l := must(listens.Listen(t.Context(), cfg))(t)
	defer l.Close()
	accepted := make(chan error, 1)
	go func() {
		var err error
		if reversed {
			there, err = l.AcceptInitiator(t.Context())
		} else {
			there, err = l.AcceptTarget(t.Context())
		}
		accepted <- err
	}()
	if reversed {
		here = must(dials.DialTarget(t.Context(), l.Address(), cfg))(t)
	} else {
		here = must(dials.Dial(t.Context(), l.Address(), cfg))(t)
	}
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
	return here, there
}

// TestMessagesAreStaged: what a CPU puts in place is not given GPU memory.
func TestMessagesAreStaged(t *testing.T) {
	needUCX(t)
	able := staged.Over(rdma.WithReachableGPUs())
	here, there := meet(t, able, able, transport.Config{Lane: "tcp", Operation: "am"}, false)
	for _, e := range []transport.Endpoint{here, there} {
		if s := e.Path().Staging; s == nil || !strings.Contains(s.Reason, "active messages are put in place by a CPU") {
			t.Errorf("staging %+v", s)
		}
	}
	if err := errors.Join(here.Close(), there.Close()); err != nil {
		t.Error(err)
	}
}
