package hostinfo

import "golang.org/x/sys/unix"

// Inspect lists what this host has, as far as this process may see it. It changes
// nothing and fails in parts only.
func Inspect() Inventory {
	list, err := nics()
	i := host.inventory(list, rdmaDeviceOf)
	if err != nil {
		i.lacks("nic", Fault{err.Error(), "allow this process netlink sockets (AF_NETLINK)"})
	}
	var s unix.Statfs_t
	if unix.Statfs("/dev/shm", &s) == nil {
		i.Limits.SharedMemory = sharedMemory(int64(s.Blocks)*s.Frsize, int64(s.Bavail)*s.Frsize)
	}
	return i
}
