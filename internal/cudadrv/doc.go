// Package cudadrv calls the CUDA driver API: devices, contexts, memory, streams, events,
// asynchronous copies, legacy IPC handles, and memory shared by POSIX file descriptors. It
// has only the calls that kvbench makes.
//
// The driver, libcuda.so.1, is loaded at run time. Building needs neither the CUDA toolkit
// nor cgo, and without a driver Open returns ErrNoDriver. In builds for systems other than
// Linux on amd64 and arm64, and in builds with the tag static, Open returns ErrNotBuilt.
//
// A CUDA context belongs to an OS thread. Context.Do runs a function on a thread that is
// bound to the context; long-lived work, such as the goroutine that feeds a stream, stays
// inside one call of it. Streams, events and buffers must be used inside Do; a Buffer's
// methods call Do themselves.
//
// transport/cuda calls this package. Its tests, and the tests of its callers, run against
// the library in testdouble.
package cudadrv
