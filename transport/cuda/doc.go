// Package cuda moves GPU memory between two processes of one host with CUDA IPC: WRITE
// and READ between registered regions, as copies by the initiator's GPU. A WRITE
// completes when the target has acknowledged it.
//
// The target exports the allocations of its regions. Handle and offset travel in the
// advertisement. If legacy handles do not work, a file descriptor follows over the
// local socket. The initiator opens each allocation once per process and device, before
// the clock runs, and closes it before the owner may free it: Deregister and Close at
// the target wait until the initiator has closed it.
//
// A transfer's bytes are split over Config.Streams CUDA streams. Each stream has one
// goroutine that adds copies, in one driver call if the driver supports batches, and
// one that waits for them. A local socket carries a notice of each delivered transfer,
// its acknowledgement, and withdrawn regions. A WRITE is delivered when its copies have
// ended on the device and the target has acknowledged the notice, a READ when its
// copies have ended.
//
// The two sides must be different processes, because a handle does not open in the
// process that made it. Handles do not cross PID namespaces, but file descriptors do.
// Both conditions are checked while connecting. The endpoint's Allocate then makes
// memory that can be shared.
package cuda
