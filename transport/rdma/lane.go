package rdma

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"kvbench/internal/ucx"
)

// family is one value of Config.Lane, with the UCX transports that may carry its data.
type family struct {
	name     string
	tls      string   // UCX_TLS
	oneSided string   // UCX_TLS for puts and gets, if it differs
	carry    []string // UCX transports of the family
	rdma     bool     // needs an RDMA device
	oneHost  bool
	// peerErrors is true if UCX reports that the peer is gone.
	peerErrors bool
	// ownMemory is true if one-sided operations need memory that UCX allocated.
	ownMemory bool
	// oneRail limits a connection to one device, unless the user sets otherwise.
	// Without peer errors, UCX 1.13 aborts the process if a peer goes away while it
	// connects on two tcp devices. With peer errors UCX is a third slower.
	oneRail bool
}

// families lists the lanes to choose from. The first, any RDMA lane, is the default.
var families = []family{
	// Not UCX's alias "ib", because newer versions add transports that carry does not
	// list.
	{name: "", tls: "rc,dc,ud", carry: slices.Concat(rcTransports, dcTransports, udTransports), rdma: true, peerErrors: true},
	{name: "rc", tls: "rc", carry: rcTransports, rdma: true, peerErrors: true},
	{name: "dc", tls: "dc", carry: dcTransports, rdma: true, peerErrors: true},
	{name: "ud", tls: "ud", carry: udTransports, rdma: true, peerErrors: true},
	{name: "tcp", tls: "tcp", carry: []string{"tcp"}, oneRail: true},
	{name: "shm", tls: "sm", oneSided: "sysv,posix", carry: []string{"posix", "sysv", "cma", "knem", "xpmem"}, oneHost: true, ownMemory: true},
}

var (
	rcTransports = []string{"rc_verbs", "rc_mlx5"}
	dcTransports = []string{"dc_mlx5"}
	udTransports = []string{"ud_verbs", "ud_mlx5"}
)

// familyOf returns the family of a lane's name.
func familyOf(name string) (family, bool) {
	i := slices.IndexFunc(families, func(f family) bool { return f.name == name })
	if i < 0 {
		return family{}, false
	}
	return families[i], true
}

// transports returns UCX_TLS for an operation. UCX 1.13 crashes if it maps memory of a
// peer that has just died and the key names several transports. So puts and gets leave
// out cma, which helps only long messages.
func (f family) transports(operation string) string {
	if f.oneSided != "" && operation != opAM {
		return f.oneSided
	}
	return f.tls
}

// String describes the family in an error.
func (f family) String() string {
	if f.name == "" {
		return "an RDMA lane"
	}
	return "lane " + f.name
}

// reachability returns advice for the case that UCX cannot connect two sides.
func (f family) reachability() string {
	switch {
	case f.rdma:
		return "on RoCE look at the GID index first: both sides need one of the same type and network (UCX_IB_GID_INDEX, kvbench devices lists them), and a network that lets UDP port 4791 through"
	case f.oneHost:
		return "both processes must be on one host, in one IPC namespace, and see each other's /dev/shm"
	}
	return "UCX listens on ports of its own, which a firewall must let through (UCX_TCP_PORT_RANGE)"
}

// lane is one path of an endpoint, as printed by UCX.
type lane struct {
	index     string
	transport string   // rc_verbs
	device    string   // mlx5_0:1
	path      string   // index of the path through the device: 0, and 1 for the second link of a bond
	uses      []string // am, rma_bw#0, wireup
}

// String returns the transport and device.
func (l lane) String() string { return l.transport + "/" + l.device }

// oneSided reports whether the lane's queue pairs write and read remote memory
// directly.
func (l lane) oneSided() bool {
	return slices.Contains(rcTransports, l.transport) || slices.Contains(dcTransports, l.transport)
}

// does reports whether the lane has one of the uses, with any number that UCX appends.
func (l lane) does(uses ...string) bool {
	return slices.ContainsFunc(l.uses, func(u string) bool {
		name, _, _ := strings.Cut(u, "#")
		return slices.Contains(uses, name)
	})
}

// carries reports whether a lane carries data, and not only connection set-up.
func (ls lanes) carries(l lane) bool {
	return l.does("am", "am_bw", "rma", "rma_bw", "rkey_ptr") || slices.Contains(ls.put, l.index) || slices.Contains(ls.get, l.index)
}

// lanes holds the lanes of an endpoint.
type lanes struct {
	all      []lane
	put, get []string // indexes of the lanes with native put or get
	told     bool     // UCX printed put and get; newer versions with the second generation of protocols do not
}

// The relevant lines of ucp_ep_print_info:
//
//	lane[0]:  5:rc_verbs/mlx5_0:1.0 md[4]   -> md[4]/ib/sysdev[255] rma_bw#0 am am_bw#0
//	put[0]: 0..<short>..172..<bcopy>..(inf)
var (
	laneLine = regexp.MustCompile(`lane\[(\d+)\]:\s+\d+:([^/\s]+)/(\S+)\.(\d+)\s+md\[\d+\]\s+->\s+\S+(.*)`)
	opLine   = regexp.MustCompile(`\b(put|get)\[(\d+)\]:`)
)

// parseLanes parses the output of ucp_ep_print_info.
func parseLanes(text string) (lanes, error) {
	var ls lanes
	for line := range strings.Lines(text) {
		if m := laneLine.FindStringSubmatch(line); m != nil {
			ls.all = append(ls.all, lane{index: m[1], transport: m[2], device: m[3], path: m[4], uses: strings.Fields(m[5])})
		} else if m := opLine.FindStringSubmatch(line); m != nil && m[1] == "put" {
			ls.put = append(ls.put, m[2])
		} else if m != nil {
			ls.get = append(ls.get, m[2])
		}
		ls.told = ls.told || opLine.MatchString(line) || strings.Contains(line, "am_send:")
	}
	if len(ls.all) == 0 {
		return ls, errors.New("UCX names no lane of this connection")
	}
	return ls, nil
}

// used is the lane and protocol of one operation.
type used struct {
	lane
	emulated bool   // a one-sided operation made of messages, served by the target's CPU
	protocol string // description for the result
}

// carrying returns the lane that carries an operation. If native is false, the peer's
// memory cannot be accessed directly, and the operation is emulated.
func (ls lanes) carrying(op ucx.Op, native bool) (used, error) {
	own, name := ls.put, "put"
	if op == ucx.Get {
		own, name = ls.get, "get"
	}
	if op != ucx.ActiveMessage && native {
		for _, l := range ls.all {
			if slices.Contains(own, l.index) || !ls.told && l.oneSided() && l.does("rma", "rma_bw") {
				return used{lane: l, protocol: name}, nil
			}
		}
	}
	for _, l := range ls.all {
		if l.does("am", "am_bw") {
			if op == ucx.ActiveMessage {
				return used{lane: l, protocol: "active messages" + ls.fetched(l)}, nil
			}
			return used{lane: l, emulated: true, protocol: name + " emulated by active messages"}, nil
		}
	}
	return used{}, fmt.Errorf("UCX names no lane for %s", name)
}

// fetched returns a text that names the lane of large messages, if it differs from am.
// UCX announces them on am and moves their bytes over the lane with the most bandwidth.
func (ls lanes) fetched(am lane) string {
	for _, l := range ls.all {
		if l.does("rma_bw") && l.index != am.index {
			return ", large ones fetched over " + l.String()
		}
	}
	return ""
}

// outside returns the lanes that carry data and do not belong to a family.
func (ls lanes) outside(f family) []string {
	var out []string
	for _, l := range ls.all {
		if ls.carries(l) && !slices.Contains(f.carry, l.transport) {
			out = append(out, l.String())
		}
	}
	return out
}

// paths lists the device paths of the lanes that carry data, each once, such as
// mlx5_bond_0:1.1.
func (ls lanes) paths() []string {
	return ls.carrier(func(l lane) string { return l.device + "." + l.path })
}

// names lists the lanes that carry data, each once.
func (ls lanes) names() []string { return ls.carrier(lane.String) }

// carrier lists the results of called for the lanes that carry data, each once.
func (ls lanes) carrier(called func(lane) string) []string {
	var out []string
	for _, l := range ls.all {
		if name := called(l); ls.carries(l) && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}
