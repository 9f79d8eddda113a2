package rdma

import (
	"strings"
	"testing"

	"kvbench/internal/hostinfo"
	"kvbench/transport"
)

// textSurvey is what ucp_context_print_info of UCX 1.13.1 prints, with the lines of
// RDMA devices in the same form.
const textSurvey = `#
# UCP context
#
#     component 0  :  self
#     component 1  :  tcp
#     component 4  :  ib
#     component 5  :  rdmacm
#
#            md 0  :  component 0  self 
#            md 1  :  component 1  tcp 
#
#      resource 0  :  md 0  dev 0  flags -- self/memory0
#      resource 1  :  md 1  dev 1  flags -- tcp/lo
#      resource 2  :  md 2  dev 2  flags -- sysv/memory
#      resource 3  :  md 3  dev 2  flags -- posix/memory
#      resource 4  :  md 4  dev 3  flags -- rc_mlx5/mlx5_0:1
#      resource 5  :  md 4  dev 3  flags -- dc_mlx5/mlx5_0:1
#      resource 6  :  md 4  dev 3  flags -- ud_mlx5/mlx5_0:1
#      resource 7  :  md 5  dev 2  flags -- cma/memory
#
# memory: 1.46MB, file descriptors: 5
# create time: 4.766 ms
#
`

func lanesByName(ls []transport.Lane) map[string]transport.Lane {
	m := make(map[string]transport.Lane)
	for _, l := range ls {
		m[l.Name+"/"+l.Device] = l
	}
	return m
}

func TestSurvey(t *testing.T) {
	devices := twoPorts()
	devices[1].Software = true
	found := lanesByName(survey(textSurvey, devices, hostinfo.Fault{}, ""))
	for name, want := range map[string]transport.Lane{
		"tcp/lo":            {Usable: true},
		"sysv/memory":       {Usable: true, SameHostOnly: true},
		"posix/memory":      {Usable: true, SameHostOnly: true},
		"cma/memory":        {Usable: true, SameHostOnly: true},
		"rc_mlx5/mlx5_0:1":  {Usable: true, RDMA: true},
		"dc_mlx5/mlx5_0:1":  {Usable: true, RDMA: true},
		"ud_mlx5/mlx5_0:1":  {Usable: true, RDMA: true},
		"RDMA/mlx5_1:1":     {RDMA: true, Software: true},
		"self/memory0":      {},
		"RDMA/mlx5_0:1":     {},
		"rc_verbs/mlx5_0:1": {},
	} {
		got, ok := found[name]
		if exists := want != (transport.Lane{}); ok != exists {
			t.Errorf("%s: listed %v, want %v", name, ok, exists)
		}
		if got.Usable != want.Usable || got.RDMA != want.RDMA || got.SameHostOnly != want.SameHostOnly || got.Software != want.Software {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
		if got.Usable && got.Reason != "" {
			t.Errorf("%s is usable, and why not: %s", name, got.Reason)
		}
	}
	if len(found) != 8 {
		t.Errorf("%d lanes listed, want 8: %v", len(found), found)
	}
	// UCX has no lane on a port that nothing is wrong with.
	if r := found["RDMA/mlx5_1:1"].Reason; !strings.Contains(r, "ucx-ib") || !strings.Contains(r, "libucx0") {
		t.Errorf("a port that UCX leaves out: %q", r)
	}
}

// TestSurveyOfBroken: a lane that UCX lists is not usable where its port is not.
func TestSurveyOfBroken(t *testing.T) {
	devices := twoPorts()
	devices[0].Fault = faultPermission
	found := lanesByName(survey(textSurvey, devices, hostinfo.Fault{}, ""))
	l := found["rc_mlx5/mlx5_0:1"]
	if l.Usable || !strings.Contains(l.Reason, "permission denied") || !strings.Contains(l.Reason, "mend: give this user") {
		t.Errorf("a device that may not be opened: %+v", l)
	}
	found = lanesByName(survey(textSurvey, twoPorts(), hostinfo.Fault{}, "7"))
	if l := found["rc_mlx5/mlx5_0:1"]; l.Usable || !strings.Contains(l.Reason, "UCX_IB_GID_INDEX=7") {
		t.Errorf("a wrong GID index: %+v", l)
	}
	// A host with nothing is told what it would take.
	none := survey("", nil, faultAbsent, "")
	if len(none) != 1 || none[0].Usable || !none[0].RDMA || !strings.Contains(none[0].Reason, faultAbsent.Mend) {
		t.Errorf("no device, no lane: %+v", none)
	}
}
