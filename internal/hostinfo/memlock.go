package hostinfo

import (
	"fmt"
	"strconv"
	"strings"

	"kvbench/internal/units"
)

// Memlock is how much memory this process may keep from being swapped out, which
// is what registering it with an RDMA device does: RLIMIT_MEMLOCK, in bytes or Unlimited.
type Memlock struct {
	Soft, Hard int64
	// Exempt processes may lock any amount: they have CAP_IPC_LOCK, and not merely
	// in a user namespace of their own.
	Exempt bool
	Fault  Fault
}

// memlock reads the limit from /proc; nil where it does not tell.
func (t tree) memlock() *Memlock {
	limits, _ := t.text("proc/self/limits")
	for line := range strings.Lines(limits) {
		values, ok := strings.CutPrefix(line, "Max locked memory")
		if !ok {
			continue
		}
		columns := strings.Fields(values)
		if len(columns) < 2 {
			return nil
		}
		soft, errSoft := parseLimit(columns[0])
		hard, errHard := parseLimit(columns[1])
		if errSoft != nil || errHard != nil {
			return nil
		}
		m := &Memlock{Soft: soft, Hard: hard, Exempt: t.mayLock()}
		m.Fault = m.fault(kibibytes(t.value("MemTotal", "proc/meminfo")))
		return m
	}
	return nil
}

func parseLimit(s string) (int64, error) {
	if s == "unlimited" {
		return Unlimited, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err == nil && n < 0 {
		err = strconv.ErrRange
	}
	return n, err
}

// mayLock reports whether the kernel spares this process the limit: it asks for
// CAP_IPC_LOCK in the initial user namespace (ib_umem_get, drivers/infiniband/core/umem.c).
func (t tree) mayLock() bool {
	const ipcLock = 14 // include/uapi/linux/capability.h
	effective, err := strconv.ParseUint(t.value("CapEff", "proc/self/status"), 16, 64)
	if err != nil || effective&(1<<ipcLock) == 0 {
		return false
	}
	ids, ok := t.text("proc/self/uid_map")
	return !ok || strings.Join(strings.Fields(ids), " ") == "0 0 4294967295" // a kernel without user namespaces has no map
}

// fault holds the limit against the host's memory, which is the most that a run can want.
func (m Memlock) fault(memory int64) Fault {
	if m.Exempt || m.Soft == Unlimited || m.Soft >= memory {
		return Fault{}
	}
	return Fault{fmt.Sprintf("an RDMA device can register %s of this process's memory at most", units.BinaryBytes(m.Soft)), m.mend()}
}

func (m Memlock) mend() string {
	const elsewhere = "systemd: LimitMEMLOCK=infinity; docker: --ulimit memlock=-1 --cap-add=IPC_LOCK; Kubernetes: the capability IPC_LOCK"
	if m.Hard == Unlimited {
		return "ulimit -l unlimited in the shell that starts kvbench; " + elsewhere
	}
	return "raise the hard limit: \"* - memlock unlimited\" in /etc/security/limits.conf and log in again; " + elsewhere
}

// LockLimit returns this process's limit, or nil where the system does not tell.
func LockLimit() *Memlock { return host.memlock() }
