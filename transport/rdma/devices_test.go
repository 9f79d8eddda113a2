package rdma

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"kvbench/internal/hostinfo"
	"kvbench/internal/ucx"
	"kvbench/transport"
)

// The faults as hostinfo words them, whose own tests hold them against files of /sys.
var (
	faultAbsent     = hostinfo.Fault{Reason: "the kernel has no RDMA support loaded: /sys/class/infiniband is absent", Mend: "modprobe rdma_rxe"}
	faultDown       = hostinfo.Fault{Reason: "the port is DOWN, its link Disabled", Mend: "ip link set ens1np0 up"}
	faultPermission = hostinfo.Fault{Reason: "/dev/infiniband/uverbs0 may not be opened: permission denied", Mend: "give this user read and write access to it"}
)

// twoPorts is a device with RoCE and one with InfiniBand.
func twoPorts() []hostinfo.RDMADevice {
	return []hostinfo.RDMADevice{
		{Name: "mlx5_0", Ports: []hostinfo.RDMAPort{{
			Number: 1, State: "ACTIVE", LinkLayer: "Ethernet", Netdevs: []string{"ens1np0"},
			GIDs: []hostinfo.GID{
				{Index: 2, Address: netip.MustParseAddr("::ffff:192.0.2.2"), Type: "IB/RoCE v1"},
				{Index: 3, Address: netip.MustParseAddr("::ffff:192.0.2.2"), Type: "RoCE v2"},
			},
		}}},
		{Name: "mlx5_1", Ports: []hostinfo.RDMAPort{{
			Number: 1, State: "ACTIVE", LinkLayer: "InfiniBand",
			GIDs: []hostinfo.GID{{Index: 0, Address: netip.MustParseAddr("fe80::1"), Type: "IB"}},
		}}},
	}
}

// TestObstacle: each thing that can be in the way has its own message, which names
// the device and the mend.
func TestObstacle(t *testing.T) {
	down, forbidden, bothDown := twoPorts(), twoPorts(), twoPorts()
	down[0].Ports[0].Fault = faultDown
	forbidden[0].Fault = faultPermission
	bothDown[0].Ports[0].Fault, bothDown[1].Ports[0].Fault = faultDown, faultDown
	for _, c := range []struct {
		name, device string
		devices      []hostinfo.RDMADevice
		index        string
		want         []string // nothing is in the way where it is empty
	}{
		{"no device", "", nil, "", []string{"/sys/class/infiniband", faultAbsent.Reason, "mend: " + faultAbsent.Mend, "--lane tcp", "--lane shm"}},
		{"no device of that name", "mlx5_7", nil, "", []string{"/sys/class/infiniband", faultAbsent.Reason}},
		{"any of two", "", twoPorts(), "", nil},
		{"by name", "mlx5_1", twoPorts(), "", nil},
		{"by name and port", "mlx5_1:1", twoPorts(), "", nil},
		{"by interface", "ens1np0", twoPorts(), "", nil},
		{"wrong name", "mlx5_7", twoPorts(), "", []string{`no RDMA device "mlx5_7"`, "mlx5_0:1 (ens1np0)", "mlx5_1:1", "choose one of them"}},
		{"wrong port", "mlx5_0:2", twoPorts(), "", []string{`"mlx5_0:2"`, "mlx5_0:1 (ens1np0)"}},
		{"interface without a device", "eth0", twoPorts(), "", []string{`"eth0"`, "mlx5_0:1 (ens1np0)"}},
		{"no ports", "", []hostinfo.RDMADevice{{Name: "mlx5_0"}}, "", []string{"mlx5_0 shows no ports", "mend: "}},
		{"port down", "mlx5_0", down, "", []string{"mlx5_0:1: the port is DOWN", "mend: ip link set ens1np0 up"}},
		{"one of two ports down", "", down, "", nil},
		{"both ports down", "", bothDown, "", []string{"mlx5_0:1: the port is DOWN", "mlx5_1:1: the port is DOWN", "mend: "}},
		{"no permission", "mlx5_0", forbidden, "", []string{"mlx5_0:1: /dev/infiniband/uverbs0", "permission denied", "mend: give this user"}},
		{"GID that is there", "mlx5_0", twoPorts(), "3", nil},
		{"wrong GID", "mlx5_0", twoPorts(), "1", []string{"UCX_IB_GID_INDEX=1", "mlx5_0:1", "2 (::ffff:192.0.2.2, IB/RoCE v1)", "3 (::ffff:192.0.2.2, RoCE v2)", "mend: unset it"}},
		{"GID of another port than the first", "", twoPorts(), "0", nil},
		{"GID of no port", "", twoPorts(), "9", []string{"UCX_IB_GID_INDEX=9", "mlx5_0:1", "mlx5_1:1"}},
		{"GID of UCX's own choice", "mlx5_0", twoPorts(), "auto", nil},
		{"wrong GID beside a port that is down", "", down, "3", []string{"UCX_IB_GID_INDEX=3", "mlx5_1:1", "0 (fe80::1, IB)", "mlx5_0:1: the port is DOWN"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := obstacle(c.device, c.devices, faultAbsent, c.index)
			if len(c.want) == 0 && got != "" {
				t.Errorf("something is in the way: %s", got)
			}
			for _, w := range c.want {
				if !strings.Contains(got, w) {
					t.Errorf("the message does not say %q:\n%s", w, got)
				}
			}
		})
	}
}

// TestCheck: what is in the way is an error of the contract, for lanes that need a
// device and for no others.
func TestCheck(t *testing.T) {
	for _, f := range families {
		if err := check(f, "", twoPorts(), hostinfo.Fault{}, ""); err != nil {
			t.Errorf("%v with devices: %v", f, err)
		}
		if !f.rdma {
			if err := usable(f, "eth0"); err != nil {
				t.Errorf("%v needs no RDMA device: %v", f, err)
			}
			continue
		}
		err := check(f, "", nil, faultAbsent, "")
		if !errors.Is(err, transport.ErrUnavailable) {
			t.Errorf("%v without a device: %v does not wrap ErrUnavailable", f, err)
		}
		says(t, err, f.String(), faultAbsent.Reason)
	}
}

func valueOf(settings []ucx.Setting, name string) (string, bool) {
	for _, s := range settings {
		if s.Name == name {
			return s.Value, true
		}
	}
	return "", false
}

// TestSettings: the user's environment goes first, and a flag before it.
func TestSettings(t *testing.T) {
	for _, name := range []string{"UCX_TLS", "UCX_NET_DEVICES", "UCX_MAX_RNDV_RAILS"} {
		unset(t, name)
	}
	tls := map[string]string{"": "rc,dc,ud", "rc": "rc", "dc": "dc", "ud": "ud", "tcp": "tcp", "shm": "sysv,posix"}
	for _, f := range families {
		s := settings(f, transport.Config{})
		if got, _ := valueOf(s, "TLS"); got != tls[f.name] {
			t.Errorf("%v: UCX_TLS %q, want %q", f, got, tls[f.name])
		}
		if got, ok := valueOf(s, "NET_DEVICES"); ok {
			t.Errorf("%v: UCX_NET_DEVICES %q without a device", f, got)
		}
		if _, ok := valueOf(s, "MAX_RNDV_RAILS"); ok != (f.name == "tcp") {
			t.Errorf("%v: held to one rail: %v", f, ok)
		}
	}
	shm, _ := familyOf("shm")
	if got, _ := valueOf(settings(shm, transport.Config{Operation: opAM}), "TLS"); got != "sm" {
		t.Errorf("messages over shared memory: UCX_TLS %q, want all of sm", got)
	}
	tcp, _ := familyOf("tcp")
	if got, _ := valueOf(settings(tcp, transport.Config{Device: "eth0"}), "NET_DEVICES"); got != "eth0" {
		t.Errorf("device eth0: UCX_NET_DEVICES %q", got)
	}
	t.Setenv("UCX_TLS", "all")
	t.Setenv("UCX_NET_DEVICES", "lo")
	t.Setenv("UCX_MAX_RNDV_RAILS", "2")
	if s := settings(tcp, transport.Config{}); len(s) != 0 {
		t.Errorf("the user has set all of them and gets %v besides", s)
	}
	if s := settings(tcp, transport.Config{Device: "eth0"}); len(s) != 1 || s[0] != (ucx.Setting{Name: "NET_DEVICES", Value: "eth0"}) {
		t.Errorf("--device beside the environment: %v", s)
	}
	env := environment()
	if env["UCX_TLS"] != "all" || env["UCX_NET_DEVICES"] != "lo" {
		t.Errorf("the environment that is recorded: %v", env)
	}
}

// TestExplain: what UCX says when it cannot be set up, with what led there.
func TestExplain(t *testing.T) {
	rc, _ := familyOf("rc")
	failure := func(status int) error {
		return fmt.Errorf("start: %w", &ucx.Error{Call: "ucp_init", Status: status, Message: "UCX's words"})
	}
	unset(t, "UCX_TLS")
	for status, want := range map[int][]string{
		ucx.StatusNoDevice:    {"no such lane", "kvbench devices"},
		ucx.StatusUnreachable: {"no such lane", "on each"},
		ucx.StatusNoMemory:    {"cannot use the device"},
		ucx.StatusIO:          {"cannot use the device"},
		ucx.StatusNoResource:  {"UCX: ucp_init"},
	} {
		err := explain(failure(status), rc, "")
		if !errors.Is(err, transport.ErrUnavailable) {
			t.Errorf("status %d: %v does not wrap ErrUnavailable", status, err)
		}
		says(t, err, append(want, "lane rc", "ucp_init", "UCX's words")...)
	}
	t.Setenv("UCX_TLS", "tcp")
	says(t, explain(failure(ucx.StatusNoDevice), rc, "mlx5_0"), "UCX_TLS=tcp from the environment", "on device mlx5_0")
	other := errors.New("something else")
	if err := explain(other, rc, ""); err != other {
		t.Errorf("an error that is not UCX's became %v", err)
	}
}

// TestLockAdvice: the limit is named only where it can be the reason.
func TestLockAdvice(t *testing.T) {
	fault := hostinfo.Fault{Reason: "an RDMA device can register 8 MiB of this process's memory at most", Mend: "ulimit -l unlimited"}
	low := &hostinfo.Memlock{Soft: 8 << 20, Hard: hostinfo.Unlimited, Fault: fault}
	for _, c := range []struct {
		name  string
		limit *hostinfo.Memlock
		size  int64
		named bool
	}{
		{"more than the limit", low, 8<<20 + 1, true},
		{"size unknown", low, 0, true},
		{"within the limit", low, 8 << 20, false},
		{"no limit", &hostinfo.Memlock{Soft: hostinfo.Unlimited, Hard: hostinfo.Unlimited}, 1 << 40, false},
		{"limit unknown", nil, 1 << 40, false},
	} {
		got := lockAdvice(c.limit, c.size)
		if named := got == fault.Reason+"; mend: "+fault.Mend; named != c.named {
			t.Errorf("%s: %q", c.name, got)
		}
		if !c.named && !strings.Contains(got, "UCX_LOG_LEVEL") {
			t.Errorf("%s: %q does not say how to learn more", c.name, got)
		}
	}
	err := explainRegistration(&ucx.Error{Call: "ucp_mem_map", Status: ucx.StatusIO, Message: "Input/output error"}, transport.HostMemory, 64<<20)
	says(t, err, "register 64 MiB", "ucp_mem_map", "Input/output error")
	err = explainRegistration(&ucx.Error{Call: "ucp_mem_map", Status: ucx.StatusIO, Message: "Input/output error"}, transport.CUDAMemory, 64<<20)
	says(t, err, "register 64 MiB of GPU memory", "Input/output error", "BAR1")
	other := errors.New("something else")
	if err := explainRegistration(other, transport.HostMemory, 1); err != other {
		t.Errorf("an error that is not UCX's became %v", err)
	}
}

// TestLimit: under a limit that UCX itself does not fit into nothing is tried.
func TestLimit(t *testing.T) {
	fault := hostinfo.Fault{Reason: "an RDMA device can register 64 KiB of this process's memory at most", Mend: "ulimit -l unlimited"}
	f := families[0]
	for _, c := range []struct {
		name  string
		limit *hostinfo.Memlock
		low   bool
	}{
		{"too low", &hostinfo.Memlock{Soft: 64 << 10, Fault: fault}, true},
		{"just too low", &hostinfo.Memlock{Soft: 32<<20 - 1, Fault: fault}, true},
		{"enough for UCX", &hostinfo.Memlock{Soft: 32 << 20, Fault: fault}, false},
		{"exempt", &hostinfo.Memlock{Soft: 64 << 10, Exempt: true}, false},
		{"unknown", nil, false},
	} {
		err := checkLimit(f, c.limit)
		if (err != nil) != c.low {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.low {
			says(t, err, "64 KiB", "ulimit -l unlimited")
			if !errors.Is(err, transport.ErrUnavailable) {
				t.Errorf("%s: %v is not ErrUnavailable", c.name, err)
			}
		}
	}
}

// TestCheckConfig: what can never be is refused as such.
func TestCheckConfig(t *testing.T) {
	for _, lane := range []string{"", "rc", "dc", "ud", "tcp", "shm"} {
		cfg, f, err := checkConfig(transport.Config{Lane: lane})
		if err != nil || f.name != lane || cfg.MaxOutstanding != transport.DefaultMaxOutstanding || cfg.Streams != 1 {
			t.Errorf("lane %q: %+v, %v, %v", lane, cfg, f, err)
		}
	}
	for name, c := range map[string]struct {
		cfg  transport.Config
		says string
	}{
		"lane":        {transport.Config{Lane: "roce"}, `lane "roce" is not known: choose rc, dc, ud, tcp or shm`},
		"operation":   {transport.Config{Operation: "scatter"}, "choose put, am or get"},
		"streams":     {transport.Config{Streams: 2}, "UCX_MAX_RNDV_RAILS"},
		"device":      {transport.Config{Lane: "shm", Device: "eth0"}, "leave --device out"},
		"outstanding": {transport.Config{MaxOutstanding: maxOutstanding + 1}, "65537 outstanding transfers, where 1 to 65536"},
		"negative":    {transport.Config{MaxOutstanding: -1}, "-1 outstanding"},
		"timeout":     {transport.Config{PeerTimeout: -1}, "negative timeout"},
	} {
		_, _, err := checkConfig(c.cfg)
		if !errors.Is(err, transport.ErrUnsupported) {
			t.Errorf("%s: %v does not wrap ErrUnsupported", name, err)
		}
		says(t, err, c.says)
	}
}

// TestCommonNode: a thread is kept near a device only where that says where.
func TestCommonNode(t *testing.T) {
	on := func(nodes ...int) (ports []port) {
		for _, n := range nodes {
			ports = append(ports, port{&hostinfo.RDMADevice{NUMANode: n}, &hostinfo.RDMAPort{}})
		}
		return ports
	}
	for _, c := range []struct {
		ports []port
		want  int
	}{{nil, -1}, {on(1), 1}, {on(0, 0), 0}, {on(0, 1), -1}, {on(hostinfo.UnknownNode), hostinfo.UnknownNode}, {on(hostinfo.UnknownNode, 0), -1}} {
		if got := commonNode(c.ports); got != c.want {
			t.Errorf("%d ports: node %d, want %d", len(c.ports), got, c.want)
		}
	}
}
