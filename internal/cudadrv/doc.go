// Package cudadrv calls the CUDA driver API: devices, contexts, memory, streams,
// events, asynchronous copies, legacy IPC handles, and memory that POSIX file
// descriptors share. It has the calls that kvbench makes and no more.
//
// The driver, libcuda.so.1, is loaded at run time: building needs neither the
// CUDA toolkit nor cgo, and a binary runs where there is no driver and says so.
// Builds for other systems than Linux on amd64 and arm64, and builds with the tag
// static, compile and answer ErrNotBuilt.
//
// A CUDA context belongs to an OS thread. Context.Do runs a function on a thread
// that is bound to the context; whatever lives long, such as the goroutine that
// feeds a stream, stays inside one call of it. Streams, events and buffers are
// used inside Do; a Buffer's own methods call it themselves.
//
// The package is called by transport/cuda. Its tests, and the tests of those that
// use it, run against the library in testdouble.
package cudadrv
