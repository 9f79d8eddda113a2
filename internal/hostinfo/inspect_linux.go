package hostinfo

import "golang.org/x/sys/unix"

// Inspect lists this host's inventory, as far as this process may read it. It changes
// nothing. If a part cannot be read, the others are still listed.
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
