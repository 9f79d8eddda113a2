// Package cuda moves GPU memory between two processes of one host with CUDA IPC:
// WRITE and READ between registered regions, as copies that the initiator's GPU
// does, and completion once the peer knows of them.
//
// The target exports the allocations that its regions lie in. Handle, base and
// offset travel in the advertisement, and where legacy handles do not work a file
// descriptor follows over the local socket; the initiator opens each allocation once a
// process and device, before the clock runs, and closes it before its owner may
// free it: Deregister and Close at the target wait until the initiator has let go.
//
// A transfer's bytes are split over Config.Streams CUDA streams. Each stream has a
// goroutine that adds copies, in one call of the driver's where it takes batches,
// and one that waits for them. A local socket carries what both sides must know: a
// notice of each delivered transfer, its acknowledgement, and withdrawn regions.
// A WRITE is delivered when the copies have ended on the device and the target has
// acknowledged the notice; a READ when its copies have ended.
//
// Neither side can be the other's process: a handle does not open where it was
// made. Nor do handles cross PID namespaces, which file descriptors do. Both are found
// out when connecting; the endpoint's Allocate then makes memory that can be shared.
package cuda
