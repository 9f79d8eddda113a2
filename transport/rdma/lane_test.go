package rdma

import (
	"slices"
	"strings"
	"testing"

	"kvbench/internal/ucx"
)

// What ucp_ep_print_info of UCX 1.13.1 says of connections between two processes.
// The shared memory and TCP ones are as it printed them. Those of RDMA devices have
// the form of ucp_ep_config_lane_info_str (src/ucp/core/ucp_ep.c), from which the
// order of the uses is too.
const (
	textShared = `#
# UCP endpoint 
#
#               peer: <no debug data>
#                 lane[0]:  0:sysv/memory.0 md[0]           -> md[0]/sysv/sysdev[255] am am_bw#0
#                 lane[1]:  1:posix/memory.0 md[1]          -> md[1]/posix/sysdev[255]
#                 lane[2]:  2:cma/memory.0 md[2]            -> md[2]/cma/sysdev[255] rma_bw#0
#
#                 am_send: 0..<egr/short>..93..<egr/bcopy>..8256..<rndv>..(inf)
#                  put[0]: 0..<short>..4294967296..<bcopy>..(inf)
#                  get[0]: 0..<bcopy>..(inf)
#                  put[1]: 0..<short>..4294967296..<bcopy>..(inf)
#                  get[1]: 0..<bcopy>..(inf)
#
#                  rma_bw: mds rndv_rkey_size 9
#
`
	textTCP = `#
# UCP endpoint 
#
#               peer: <no debug data>
#                 lane[0]:  0:tcp/lo.0 md[0]                -> md[0]/tcp/sysdev[255] rma_bw#0 am am_bw#0 wireup
#
#                 am_send: 0..<egr/short>..8185..<egr/zcopy>..20553..<rndv>..(inf)
#
#                  rma_bw: mds [0] rndv_rkey_size 10
#
`
	textTwoRails = `#
# UCP endpoint 
#
#               peer: <no debug data>
#                 lane[0]:  0:tcp/lo.0 md[0]                -> md[0]/tcp/sysdev[255] rma_bw#0 am am_bw#0
#                 lane[1]:  1:tcp/eth0.0 md[0]              -> md[0]/tcp/sysdev[255] rma_bw#1 wireup
#
#                 am_send: 0..<egr/short>..8185..<egr/zcopy>..8192..<rndv>..(inf)
#
#                  rma_bw: mds [0] rndv_rkey_size 10
#
`
	textVerbs = `#
# UCP endpoint 
#
#               peer: <no debug data>
#                 lane[0]:  0:rc_verbs/rxe0:1.0 md[0]       -> md[0]/ib/sysdev[255] rma_bw#0 am am_bw#0
#                 lane[1]:  1:ud_verbs/rxe0:1.0 md[0]       -> md[0]/ib/sysdev[255] keepalive wireup
#
#                 am_send: 0..<egr/short>..61..<egr/bcopy>..8256..<rndv>..(inf)
#                  put[0]: 0..<short>..61..<bcopy>..8257..<zcopy>..(inf)
#                  get[0]: 0..<bcopy>..8257..<zcopy>..(inf)
#
#                  rma_bw: mds [0] rndv_rkey_size 19
#
`
	textConnecting = `#                 lane[0]:  0:rc_verbs/rxe0:1.0 md[0]       -> md[0]/ib/sysdev[255] rma_bw#0 am am_bw#0 wireup{ud_verbs/rxe0:1}
#                  put[0]: 0..<short>..61..<bcopy>..8257..<zcopy>..(inf)
#                  get[0]: 0..<bcopy>..8257..<zcopy>..(inf)
`
	textRails = `#                 lane[0]: 10:rc_mlx5/mlx5_0:1.0 md[4]      -> md[4]/ib/sysdev[3] rma_bw#0 am am_bw#0
#                 lane[1]: 15:rc_mlx5/mlx5_1:1.0 md[5]      -> md[5]/ib/sysdev[4] rma_bw#1
#                 lane[2]:  3:tcp/ens1np0.0 md[1]           -> md[1]/tcp/sysdev[255] wireup
#                  put[0]: 0..<short>..172..<bcopy>..8257..<zcopy>..(inf)
#                  get[0]: 0..<bcopy>..8257..<zcopy>..(inf)
`
	// A bond of two links is one device, with a path over each.
	textBond = `#                 lane[0]: 10:rc_mlx5/mlx5_bond_0:1.0 md[4] -> md[4]/ib/sysdev[3] rma_bw#0 am am_bw#0
#                 lane[1]: 10:rc_mlx5/mlx5_bond_0:1.1 md[4] -> md[4]/ib/sysdev[3] rma_bw#1
#                 lane[2]: 12:ud_mlx5/mlx5_bond_0:1.0 md[4] -> md[4]/ib/sysdev[3] wireup
#                  put[0]: 0..<short>..172..<bcopy>..8257..<zcopy>..(inf)
#                  get[0]: 0..<bcopy>..8257..<zcopy>..(inf)
`
	// UCX is free to put the fast lane elsewhere than where messages go.
	textFallback = `#                 lane[0]:  3:tcp/ens1np0.0 md[1]           -> md[1]/tcp/sysdev[255] am am_bw#0 wireup
#                 lane[1]: 10:rc_mlx5/mlx5_0:1.0 md[4]      -> md[4]/ib/sysdev[3] rma_bw#0
#                  put[1]: 0..<short>..172..<bcopy>..8257..<zcopy>..(inf)
#                  get[1]: 0..<bcopy>..8257..<zcopy>..(inf)
`
	// xpmem lets long messages be copied straight out of the peer's memory.
	textMapped = `#                 lane[0]:  1:posix/memory.0 md[1]          -> md[1]/posix/sysdev[255] am am_bw#0
#                 lane[1]:  3:xpmem/memory.0 md[3]          -> md[3]/xpmem/sysdev[255] rkey_ptr
`
	// With the second generation of its protocols UCX does not tell which lanes put and
	// get; the form is that of ucp_ep_config_print in UCX 1.16.
	textSecond = `#                 lane[0]: 10:rc_mlx5/mlx5_0:1.0 md[4]      -> md[4]/ib/sysdev[3] seg 8256 rma_bw#0 am am_bw#0
#                 lane[1]: 12:ud_mlx5/mlx5_0:1.0 md[4]      -> md[4]/ib/sysdev[3] seg 4088 wireup
`
	textSecondDatagrams = `#                 lane[0]: 12:ud_mlx5/mlx5_0:1.0 md[4]      -> md[4]/ib/sysdev[3] seg 4088 am am_bw#0 wireup
`
	// A lane with queue pairs that serves to connect, and neither puts nor gets.
	textSecondWireup = textSecondDatagrams + `#                 lane[1]: 10:rc_mlx5/mlx5_0:1.0 md[4]      -> md[4]/ib/sysdev[3] seg 8256 keepalive wireup
`
	textDatagrams = `#                 lane[0]:  1:ud_verbs/rxe0:1.0 md[0]       -> md[0]/ib/sysdev[255] am am_bw#0 wireup
`
)

func parsed(t *testing.T, text string) lanes {
	t.Helper()
	ls, err := parseLanes(text)
	if err != nil {
		t.Fatal(err)
	}
	return ls
}

func TestParseLanes(t *testing.T) {
	ls := parsed(t, textVerbs)
	want := []lane{
		{"0", "rc_verbs", "rxe0:1", "0", []string{"rma_bw#0", "am", "am_bw#0"}},
		{"1", "ud_verbs", "rxe0:1", "0", []string{"keepalive", "wireup"}},
	}
	if !slices.EqualFunc(ls.all, want, func(a, b lane) bool {
		return a.index == b.index && a.transport == b.transport && a.device == b.device && a.path == b.path && slices.Equal(a.uses, b.uses)
	}) {
		t.Errorf("lanes %+v, want %+v", ls.all, want)
	}
	if !slices.Equal(ls.put, []string{"0"}) || !slices.Equal(ls.get, []string{"0"}) {
		t.Errorf("put on %v, get on %v, want both on 0 only", ls.put, ls.get)
	}
	for _, none := range []string{"", "#\n# UCP endpoint\n#\n", "<Failed to create UCP context>\n"} {
		if _, err := parseLanes(none); err == nil {
			t.Errorf("%q: no error, and it names no lane", none)
		}
	}
}

func TestLanesThatCarry(t *testing.T) {
	for _, c := range []struct {
		name, text string
		carry      []string
	}{
		// cma fetches long messages; posix has no use named and can put.
		{"shared memory", textShared, []string{"sysv/memory", "posix/memory", "cma/memory"}},
		{"mapped memory", textMapped, []string{"posix/memory", "xpmem/memory"}},
		{"tcp", textTCP, []string{"tcp/lo"}},
		{"tcp on two devices", textTwoRails, []string{"tcp/lo", "tcp/eth0"}},
		{"verbs", textVerbs, []string{"rc_verbs/rxe0:1"}},
		{"verbs while connecting", textConnecting, []string{"rc_verbs/rxe0:1"}},
		{"two rails", textRails, []string{"rc_mlx5/mlx5_0:1", "rc_mlx5/mlx5_1:1"}},
		{"two links of a bond", textBond, []string{"rc_mlx5/mlx5_bond_0:1"}},
		{"messages elsewhere", textFallback, []string{"tcp/ens1np0", "rc_mlx5/mlx5_0:1"}},
	} {
		if got := parsed(t, c.text).names(); !slices.Equal(got, c.carry) {
			t.Errorf("%s: data travels on %v, want %v", c.name, got, c.carry)
		}
	}
}

// TestOutside: what carries data and was not asked for is named, whatever else is there.
func TestOutside(t *testing.T) {
	for _, c := range []struct {
		text, lane string
		outside    []string
	}{
		{textShared, "shm", nil},
		{textShared, "tcp", []string{"sysv/memory", "posix/memory", "cma/memory"}},
		{textShared, "", []string{"sysv/memory", "posix/memory", "cma/memory"}},
		{textTCP, "tcp", nil},
		{textTCP, "rc", []string{"tcp/lo"}},
		{textTCP, "", []string{"tcp/lo"}},
		{textTwoRails, "shm", []string{"tcp/lo", "tcp/eth0"}},
		{textVerbs, "", nil},
		{textVerbs, "rc", nil}, // ud only connects
		{textVerbs, "ud", []string{"rc_verbs/rxe0:1"}},
		{textVerbs, "dc", []string{"rc_verbs/rxe0:1"}},
		{textConnecting, "rc", nil},
		{textRails, "", nil}, // tcp only connects
		{textRails, "rc", nil},
		{textFallback, "", []string{"tcp/ens1np0"}}, // half on the right lane is the wrong lane
		{textFallback, "rc", []string{"tcp/ens1np0"}},
		{textDatagrams, "ud", nil},
		{textDatagrams, "rc", []string{"ud_verbs/rxe0:1"}},
	} {
		f, ok := familyOf(c.lane)
		if !ok {
			t.Fatalf("no lane %q", c.lane)
		}
		if got := parsed(t, c.text).outside(f); !slices.Equal(got, c.outside) {
			t.Errorf("asked for %v: outside are %v, want %v, of\n%s", f, got, c.outside, c.text)
		}
	}
}

func TestCarrying(t *testing.T) {
	for _, c := range []struct {
		name, text string
		op         ucx.Op
		native     bool
		lane       string
		emulated   bool
		protocol   string
	}{
		{"verbs put", textVerbs, ucx.Put, true, "rc_verbs/rxe0:1", false, "put"},
		{"verbs get", textVerbs, ucx.Get, true, "rc_verbs/rxe0:1", false, "get"},
		{"verbs messages", textVerbs, ucx.ActiveMessage, true, "rc_verbs/rxe0:1", false, "active messages"},
		{"first of two rails", textRails, ucx.Put, true, "rc_mlx5/mlx5_0:1", false, "put"},
		{"datagrams have no put", textDatagrams, ucx.Put, true, "ud_verbs/rxe0:1", true, "put emulated by active messages"},
		{"tcp put", textTCP, ucx.Put, true, "tcp/lo", true, "put emulated by active messages"},
		{"tcp get", textTwoRails, ucx.Get, true, "tcp/lo", true, "get emulated by active messages"},
		{"tcp messages", textTCP, ucx.ActiveMessage, true, "tcp/lo", false, "active messages"},
		{"shared messages", textShared, ucx.ActiveMessage, true, "sysv/memory", false, "active messages, large ones fetched over cma/memory"},
		{"shared put", textShared, ucx.Put, true, "sysv/memory", false, "put"},
		{"shared put of memory that cannot be reached", textShared, ucx.Put, false, "sysv/memory", true, "put emulated by active messages"},
		{"shared get of memory that cannot be reached", textShared, ucx.Get, false, "sysv/memory", true, "get emulated by active messages"},
		{"untold put", textSecond, ucx.Put, true, "rc_mlx5/mlx5_0:1", false, "put"},
		{"untold get", textSecond, ucx.Get, true, "rc_mlx5/mlx5_0:1", false, "get"},
		{"untold datagrams", textSecondDatagrams, ucx.Put, true, "ud_mlx5/mlx5_0:1", true, "put emulated by active messages"},
		{"untold connecting", textSecondWireup, ucx.Put, true, "ud_mlx5/mlx5_0:1", true, "put emulated by active messages"},
		{"put beside messages", textFallback, ucx.Put, true, "rc_mlx5/mlx5_0:1", false, "put"},
		{"messages beside put", textFallback, ucx.ActiveMessage, true, "tcp/ens1np0", false, "active messages, large ones fetched over rc_mlx5/mlx5_0:1"},
	} {
		u, err := parsed(t, c.text).carrying(c.op, c.native)
		if err != nil || u.String() != c.lane || u.emulated != c.emulated || u.protocol != c.protocol {
			t.Errorf("%s: %s by %q, emulated %v, %v; want %s by %q, emulated %v", c.name, u, u.protocol, u.emulated, err, c.lane, c.protocol, c.emulated)
		}
	}
	// A lane that can do neither is no lane for it.
	ls := parsed(t, "# lane[0]:  2:cma/memory.0 md[2]            -> md[2]/cma/sysdev[255] rma_bw#0\n")
	for _, op := range []ucx.Op{ucx.Put, ucx.ActiveMessage} {
		if u, err := ls.carrying(op, true); err == nil {
			t.Errorf("operation %d on cma alone: %v, want an error", op, u)
		}
	}
}

// TestWrongLane: the message names what was asked, what there is, whose doing it is,
// and what to do.
func TestWrongLane(t *testing.T) {
	rc, _ := familyOf("rc")
	t.Setenv("UCX_TLS", "tcp")
	says(t, wrongLane(rc, []string{"tcp/lo", "tcp/eth0"}), "lane rc", "tcp/lo, tcp/eth0", "UCX_TLS=tcp in the environment", "--lane", "kvbench devices")
	unset(t, "UCX_TLS")
	any, _ := familyOf("")
	err := wrongLane(any, []string{"tcp/lo"})
	says(t, err, "an RDMA lane", "tcp/lo", "nothing better between the two sides")
	if strings.Contains(err.Error(), "environment") {
		t.Errorf("the environment is blamed and sets nothing: %v", err)
	}
}

// FuzzParseLanes: whatever UCX prints, what is made of it holds together.
func FuzzParseLanes(f *testing.F) {
	for _, text := range []string{textShared, textTCP, textTwoRails, textVerbs, textConnecting, textRails, textFallback, textDatagrams, textSecond, textBond} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ls, err := parseLanes(text)
		if err != nil {
			return
		}
		for _, name := range ls.names() {
			if transport, device, ok := strings.Cut(name, "/"); !ok || transport == "" || device == "" {
				t.Errorf("a lane called %q", name)
			}
		}
		for _, family := range families {
			for _, name := range ls.outside(family) {
				if !slices.Contains(ls.names(), name) {
					t.Errorf("%s is outside %v and carries nothing", name, family)
				}
			}
		}
	})
}

// TestPathsOfLanes: of several rails each device counts, of a bond each link, and once.
func TestPathsOfLanes(t *testing.T) {
	for text, want := range map[string][]string{
		textTwoRails: {"lo.0", "eth0.0"}, textVerbs: {"rxe0:1.0"}, textTCP: {"lo.0"},
		textRails: {"mlx5_0:1.0", "mlx5_1:1.0"}, textBond: {"mlx5_bond_0:1.0", "mlx5_bond_0:1.1"}, textSecond: {"mlx5_0:1.0"},
	} {
		if got := parsed(t, text).paths(); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
}
