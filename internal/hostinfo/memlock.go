package hostinfo

import (
	"fmt"
	"strconv"
	"strings"

	"kvbench/internal/units"
)

// Memlock is the limit on memory that this process may keep from being swapped out:
// RLIMIT_MEMLOCK, in bytes or Unlimited. Registering memory with an RDMA device counts
// against it.
type Memlock struct {
	Soft, Hard int64
	// Exempt processes may lock any amount: they have CAP_IPC_LOCK in the initial user
	// namespace.
	Exempt bool
	Fault  Fault
}

// memlock reads the limit from /proc; nil if /proc does not report it.
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

// mayLock reports whether this process is exempt from the limit: the kernel checks for
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

// fault compares the limit with the host's memory, the most that a run can use.
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

// LockLimit returns this process's limit, or nil if the system does not report it.
func LockLimit() *Memlock { return host.memlock() }
